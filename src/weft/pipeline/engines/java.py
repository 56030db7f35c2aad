"""The Java that Spark runs on: found, or told how to get."""

import os
import re
import shutil
import subprocess

from weft.errors import MissingExtra

LEAST = 17
HOW = (
    "apt install openjdk-17-jre-headless (Debian, Ubuntu), dnf install java-17-openjdk-headless (Fedora), "
    "or set JAVA_HOME to a JDK or JRE of at least 17"
)


def java_version() -> int | None:
    """Return the major version of the Java that would be started; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if done.returncode == 0 and found else None


def require_java() -> None:
    """Refuse to go on without a Java that Spark can run on, with the command that installs one."""
    version = java_version()
    if version is None:
        raise MissingExtra(f"Spark needs Java {LEAST} and there is none: {HOW}")
    if version < LEAST:
        raise MissingExtra(f"Spark needs Java {LEAST} and this is {version}: {HOW}")
