from __future__ import annotations

from pathlib import Path

import pytest

from dethpc.errors import Refused
from dethpc.master.installation import cluster_id
from dethpc.rundir.home import Home


@pytest.mark.parametrize("damage", ["", "[]", "{}"])
def test_a_damaged_cluster_file_is_refused_with_the_way_to_mend_it(tmp_path: Path, damage: str) -> None:
    home = Home(tmp_path)
    home.make()
    known = cluster_id(home)
    assert cluster_id(home) == known
    home.cluster_file.write_text(damage)
    with pytest.raises(Refused, match=r"cluster.json is damaged: .*The id is also in master.json and in spec.json"):
        cluster_id(home)
