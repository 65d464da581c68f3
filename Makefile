# For developers: `make check` is what .ci/run checks, in the environment that is active.
CPP := $(shell git ls-files 'engine/csrc/*.cpp' 'engine/csrc/*.h' 'engine/csrc/*.inl')

.PHONY: check lint test format
check: lint test

lint:
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	clang-format --dry-run --Werror $(CPP)

test:
	pytest -n 2

format:
	ruff check --fix .
	ruff format .
	clang-format -i $(CPP)
