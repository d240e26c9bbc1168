# What people do with this project. Everything runs in .venv, which `setup` makes; ARGS passes options on.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafka docs wheel image image-files chart release classes test test-long test-night messages lint format lock clean bench compare soak

# Two files at a time; those that wait longest begin first.
PYTEST = .venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder
# What is imported is compiled once, also where an environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv ready with everything; the other targets install what they need by themselves
	@bin/setup lint test notebooks docs bench

demo: ## score a small stream and show what the rules found
	@bin/setup
	@.venv/bin/buckets demo $(ARGS)

demo-kafka: ## evaluate payments from a real Kafka as they come, for a minute
	@bin/setup
	@.venv/bin/buckets demo-kafka $(ARGS)

demo-serve: ## the same with each payment as a call, answered before it goes through
	@bin/setup
	@.venv/bin/buckets demo-kafka --serve $(ARGS)

docs: ## build the documentation as a site in buckets/site; a broken link ends it
	@bin/setup docs
	@.venv/bin/python -m docs.build

wheel: docs ## build a wheel and a source archive with the documentation in them, in dist
	@bin/setup release
	@.venv/bin/hatchling build -t sdist -t wheel

image: wheel ## build an OCI image of the wheel in dist/image.oci, without an engine; as root, on Debian or Ubuntu
	@.venv/bin/python -m deploy.image.build

image-files: wheel ## put together in dist/image what the Containerfile copies, for `docker build` and `podman build`
	@.venv/bin/python -m deploy.image.files

chart: ## check the chart for Kubernetes with helm, and write what it makes of the example values
	@bin/setup test
	@.venv/bin/python -m deploy.helm.render

release: wheel ## put together in dist what is released, with a bill of materials and checksums; the image too if it was built
	@.venv/bin/python -m deploy.release

classes: ## keep Java's classes for the tests, so that every JVM of theirs starts sooner
	@bin/setup test
	@.venv/bin/python -m tests.class_archive

test: classes ## prove the promises in some minutes: tests/short.txt
	@BUCKETS_TESTS=short $(PYTEST) -m "not slow" $(shell sed 's/#.*//' tests/short.txt) $(ARGS)

test-long: classes ## run all tests, e.g. make test-long ARGS="-k java"; with SPARK=all or SPARK=4.1.4 a part of them on other versions of Spark
	@bin/setup test notebooks
	@$(if $(SPARK),.venv/bin/python -m tests.spark_versions $(SPARK),$(PYTEST) $(ARGS))

test-night: classes ## all tests with the whole number of examples of each law, twenty kills, three long walks, and ten million damaged messages
	@bin/setup test notebooks bench
	@BUCKETS_TESTS=nightly $(PYTEST) --kills 20 $(ARGS)
	@.venv/bin/python bench/walk.py --seeds 1..3
	@.venv/bin/python bench/fuzz.py --messages 5000000

messages: ## keep what messages say now in tests/messages.json; of tests of Spark and Kafka with ARGS=FILES
	@bin/setup test notebooks
	@$(PYTEST) -q -m "not slow" --write-messages \
		$(or $(ARGS),tests/core tests/cli_unit tests/docs tests/generator tests/setup)

lint: ## check style, format, types and who imports whom
	@bin/setup lint
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo

format: ## format the code and mend what can be mended
	@bin/setup lint
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: ## measure, for an hour and a half, or one benchmark: make bench ARGS="flatness --quick"
	@bin/setup bench
	@.venv/bin/python bench/all.py $(ARGS)

compare: ## measure this commit and another one in turns, e.g. make compare ARGS="HEAD~1 --quick"
	@bin/setup bench
	@.venv/bin/python bench/compare.py $(ARGS)

soak: ## run a job for 500 batches of each output and see that it stays as it was; ARGS="--batches 20000" for hours
	@bin/setup bench
	@.venv/bin/python bench/soak.py --batches 500 $(ARGS)

lock: ## write requirements.lock from pyproject.toml; newest versions with ARGS=--upgrade
	@bin/setup build
	@.venv/bin/python -m uv pip compile pyproject.toml --all-extras \
		--group lint --group test --group notebooks --group docs --group bench --group release \
		--universal --python-version 3.11 --generate-hashes --no-annotate --quiet --custom-compile-command "make lock" \
		--output-file requirements.lock $(ARGS)

clean: ## remove .venv, caches and demo output
	@rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis demo-out demo-kafka-out spark-warehouse dist docs/.build buckets/site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
