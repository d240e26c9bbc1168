# What people do with this project. Everything runs in .venv, which `setup` makes; ARGS passes options on.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-kafka test lint format lock clean bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv ready (the other targets do it by themselves)
	@bin/setup

demo: setup ## score a small stream and show what the rules found
	@.venv/bin/buckets demo $(ARGS)

demo-kafka: setup ## judge payments from a real Kafka as they come, for a minute
	@.venv/bin/buckets demo-kafka $(ARGS)

test: setup ## run the tests, e.g. make test ARGS="-k java"
	@.venv/bin/pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## check style, format and types
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: setup ## format the code and mend what can be mended
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

bench: setup ## measure, for an hour and a half, or one benchmark: make bench ARGS="flatness --quick"
	@.venv/bin/python bench/all.py $(ARGS)

lock: ## write requirements.lock from pyproject.toml; newest versions with ARGS=--upgrade
	@bin/setup python
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check uv
	@.venv/bin/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-annotate --quiet --custom-compile-command "make lock" --output-file requirements.lock $(ARGS)

clean: ## remove .venv, caches and demo output
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out demo-kafka-out spark-warehouse dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
