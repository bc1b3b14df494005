"""The rules of SARIF 2.1.0 that readers insist on, after the standard's schema and what GitHub asks for beyond it."""

from __future__ import annotations

import re
from typing import Any, Dict

LEVELS = {"none", "note", "warning", "error"}


def require_sarif(log: Dict[str, Any]) -> None:
    """Assert that a log has all that it must, nothing unknown at its top, and only references that lead somewhere."""
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    assert re.fullmatch(r"https://\S+sarif-schema-2\.1\.0\.json", log["$schema"])
    assert isinstance(log["runs"], list)
    for run in log["runs"]:
        require_run(run)


def require_run(run: Dict[str, Any]) -> None:
    assert set(run) <= {"tool", "columnKind", "invocations", "results", "properties"}
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    assert all(isinstance(invocation["executionSuccessful"], bool) for invocation in run["invocations"])
    driver = run["tool"]["driver"]
    assert isinstance(driver["name"], str)
    assert driver["name"]
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in LEVELS
        assert all(isinstance(tag, str) for tag in rule["properties"]["tags"])
    for result in run["results"]:
        require_result(result, rules)


def require_result(result: Dict[str, Any], rules: Any) -> None:
    assert set(result) <= {"ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"}
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] in LEVELS
    assert result["message"]["text"]
    assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
    for location in result.get("locations", []):
        require_location(location["physicalLocation"])


def require_location(physical: Dict[str, Any]) -> None:
    artifact = physical["artifactLocation"]
    # characters of a URI (RFC 3986); relative unless it has a scheme
    assert re.fullmatch(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+", artifact["uri"])
    assert artifact["uri"].startswith("file:///") or not artifact["uri"].startswith("/")
    region = physical["region"]
    assert set(region) <= {"startLine", "startColumn", "endLine", "endColumn", "snippet"}
    assert all(isinstance(value, int) and value >= 1 for name, value in region.items() if name != "snippet")
    assert region.get("endLine", region["startLine"]) >= region["startLine"]
