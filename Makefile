# Every target is a script of the same name in scripts/, which also works without make. ARGS is passed to the script:
#   make up ARGS="--data /srv/firearrow --brokers 2"

.PHONY: up test test-all conformance spark bench lint docs audit lock sim chaos

up test test-all conformance spark bench lint docs audit lock:
	@scripts/$@ $(ARGS)

# Simulated elected groups under faults: make sim SEEDS=1000
SEEDS ?= 100
sim:
	@scripts/sim --seeds $(SEEDS) $(ARGS)

# Clusters of real processes with injected faults under load: make chaos ROUNDS=60
ROUNDS ?= 10
chaos:
	@scripts/chaos --rounds $(ROUNDS) $(ARGS)
