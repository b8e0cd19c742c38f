# Every target is a script of the same name in scripts/, which works without make too. ARGS goes to the script:
#   make up ARGS="--data /srv/firearrow --brokers 2"

.PHONY: up test conformance spark bench lint sim chaos

up test conformance spark bench lint:
	@scripts/$@ $(ARGS)

# Elected groups under misfortune: make sim SEEDS=1000
SEEDS ?= 100
sim:
	@scripts/sim --seeds $(SEEDS) $(ARGS)

# Clusters of real processes, broken under load: make chaos ROUNDS=60
ROUNDS ?= 10
chaos:
	@scripts/chaos --rounds $(ROUNDS) $(ARGS)
