"""Fetching the parameters: checked, resumed, cached, and refused by name."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from tests.gpu.agent.conftest import KEY, Rig


def test_cached_params_are_not_fetched_twice(rig: Rig) -> None:
    rig.prepare(proofs=1)
    rig.run()
    rig.ended()
    rig.seal_and_exit()
    rig.controller.close()
    assert rig.objects.gets.count("key.zkey") == 1
    rig.work = rig.folder / "work2"
    rig.prepare(proofs=1)
    rig.run()
    assert rig.ended().exit_code == 0
    rig.seal_and_exit()
    assert rig.objects.gets.count("key.zkey") == 1
    assert b"key.zkey: was in the cache" in rig.controller.raw["setup"]


def test_a_damaged_cache_entry_is_fetched_again(rig: Rig) -> None:
    rig.prepare(proofs=1)
    cache = rig.folder / "cache"
    cache.mkdir()
    (cache / rig.controller.spec.params[0].sha256).write_bytes(b"\0" * len(KEY))
    rig.run()
    assert rig.ended().exit_code == 0
    assert (cache / rig.controller.spec.params[0].sha256).read_bytes() == KEY
    rig.seal_and_exit()


def test_a_wrong_sha256_fails_the_stage(rig: Rig) -> None:
    wrong = dataclasses.replace(rig.objects.fetch("key.zkey", KEY), sha256="0" * 64)
    rig.prepare(proofs=1, params=[wrong])
    rig.run()
    progress = rig.ended("params")
    assert "key.zkey" in progress.error
    assert "sha256" in progress.error
    assert rig.objects.gets.count("key.zkey") == 2
    assert rig.controller.pulls == []
    assert rig.seal_and_exit() == 0
    assert not list((rig.folder / "cache").glob("*.part"))


def test_a_truncated_object_fails_the_stage(rig: Rig) -> None:
    fetch = rig.objects.fetch("key.zkey", KEY)
    rig.objects.files["key.zkey"] = KEY[:1000]
    rig.prepare(proofs=1, params=[fetch])
    rig.run()
    assert "has 1000 bytes, 200000 were announced" in rig.ended("params").error
    assert rig.seal_and_exit() == 0


def test_a_transfer_that_breaks_off_goes_on_where_it_broke(rig: Rig) -> None:
    data = os.urandom(3 << 20)
    fetch = rig.objects.fetch("key.zkey", data)
    rig.objects.cut = {"key.zkey": 1 << 20}
    rig.prepare(proofs=1, params=[fetch])
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.objects.gets.count("key.zkey") == 2
    assert Path(rig.folder / "cache" / fetch.sha256).read_bytes() == data
    rig.seal_and_exit()


def test_an_expired_url_is_named_without_showing_it(rig: Rig) -> None:
    rig.prepare(proofs=1)
    rig.objects.refuse = 403
    rig.run()
    assert "the URL has expired" in rig.ended("params").error
    rig.seal_and_exit()
    assert b"X-Amz-Signature" not in rig.controller.raw["setup"]


def test_a_store_that_stays_away_fails_the_stage_at_its_deadline(rig: Rig) -> None:
    rig.prepare(proofs=1, deadlines_s={"params": 1.5})
    rig.objects.refuse = 503
    rig.run()
    assert (
        "not there within the stage's time; the last trouble was: the object store answers 503"
        in rig.ended("params").error
    )
    rig.seal_and_exit()


def test_names_that_leave_the_directory_are_refused(rig: Rig) -> None:
    bad = dataclasses.replace(rig.objects.fetch("key.zkey", KEY), name="../../key.zkey")
    rig.prepare(proofs=1, params=[bad])
    rig.run()
    assert "a file that can't be" in rig.ended("params").error
    rig.seal_and_exit()
