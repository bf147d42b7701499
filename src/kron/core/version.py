"""The version of Kron; the package takes it from here, so that reading it needs no package metadata."""

VERSION = "0.1.0"
