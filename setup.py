"""Turn the relative links of README into those of the repository: an index shows the page, and has no files beside it.

All else that is installed is said in setup.cfg.
"""

import re
import runpy
from configparser import ConfigParser
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
VERSION = runpy.run_path(str(ROOT / "src" / "porting" / "version.py"))["VERSION"]


def make_absolute(page, repository):
    """Have the relative links of a page lead to a repository's files of this version; its pictures come from there."""
    with_pictures = re.sub(r'(<img src=")(?!https?:)', rf"\1{repository}/raw/v{VERSION}/", page)
    return re.sub(r"\]\((?!https?:|#)", f"]({repository}/blob/v{VERSION}/", with_pictures)


config = ConfigParser()
config.read(ROOT / "setup.cfg", encoding="utf-8")
repository = config["metadata"]["url"]
setup(
    long_description=make_absolute((ROOT / "README.md").read_text(encoding="utf-8"), repository),
    long_description_content_type="text/markdown",
    project_urls={
        "Changelog": f"{repository}/blob/v{VERSION}/CHANGELOG.md",
        "Documentation": f"{repository}/blob/v{VERSION}/README.md#what-there-is",
        "Issues": f"{repository}/issues",
        "Source": f"{repository}/tree/v{VERSION}",
    },
)
