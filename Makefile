# Every target is a script of the same name in scripts/, which works without make too. ARGS goes to the script:
#   make up ARGS="--data /srv/firearrow --brokers 2"

.PHONY: up test conformance spark bench lint

up test conformance spark bench lint:
	@scripts/$@ $(ARGS)
