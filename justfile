# Chores, for those who have `just`. Each is one or two cargo commands; .ci/run runs them all.

default:
    @just --list

# Format everything.
fmt:
    cargo fmt --all

# Format check, clippy with warnings as errors.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# All tests.
test:
    cargo test --workspace

# Figures against their limits; `just bench cold` for some.
bench *names:
    cargo xtask bench {{names}}

# The simulator.
sim schedules="100000":
    cargo xtask sim --schedules {{schedules}}

# The simulator for longer than CI has time for.
soak:
    cargo xtask sim --schedules 1000000

# Write docs/rules.md from docs/rules.toml and the markers in the tests.
rules:
    cargo xtask rules

# The invariants that a script can check.
tidy:
    cargo xtask tidy

# Licences of everything that is depended on.
licences:
    cargo xtask licences

# Documentation, warnings as errors.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --workspace

# What CI runs.
ci:
    bash .ci/run
