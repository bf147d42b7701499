"""The pins of all packages: each version has the hashes of its files, and nothing else is in the files."""

from tools.pins import HASH, HASHES, VERSIONS, faults_of, versions_of


def test_every_pinned_version_has_its_hashes() -> None:
    text = HASHES.read_text(encoding="utf-8")
    # After a change of the dependencies: make lock.
    assert versions_of(text) == VERSIONS.read_text(encoding="utf-8").split()
    assert faults_of(text) == []
    packages = text.replace(" \\\n", " ").splitlines()
    assert all(HASH.search(package) for package in packages)


def test_an_address_or_an_option_is_no_pin() -> None:
    lines = [
        "a==1 \\",
        f"    --hash=sha256:{'0' * 64}",
        "--index-url elsewhere",
        "b @ file.whl",
    ]
    assert faults_of("\n".join(lines)) == lines[2:]
    assert versions_of("\n".join(lines[:2])) == ["a==1"]
