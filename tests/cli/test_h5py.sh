#!/usr/bin/env bash
# Records are read by h5py with no help from us: finished, and in the middle of a sweep that was killed. DLAB_PYTHON names a
# Python that has h5py (a virtual environment's).
set -uo pipefail

if [ -z "${DLAB_PYTHON:-}" ]; then
    echo "skipped: DLAB_PYTHON is not set; it should name a Python with h5py and numpy"
    exit 77
fi
if ! "$DLAB_PYTHON" -c 'import h5py, numpy' 2>/dev/null; then
    echo "skipped: $DLAB_PYTHON has no h5py or no numpy"
    exit 77
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/dlab h5py XXXXXX")
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
unset DLAB_MODEL

fail() {
    echo "FAIL: $*" >&2
    [ ! -s log ] || cat log >&2
    exit 1
}

cat >small.yaml <<'YAML'
name: small
about: a few steps of a tiny model
plan:
  kv.store: [none, contiguous]
  batch.size: [1, 2]
workload: {prompt: 8, output: 4}
measure: {repeats: 2, warmup: 0}
YAML

"$DLAB" run small.yaml -m synthetic:tiny -o 'a record.h5' >out 2>log || fail "dlab run: exit $?"
[ ! -e 'a record.h5.parts' ] || fail "the parts are still there"
chmod 444 'a record.h5'
"$DLAB_PYTHON" - 'a record.h5' small.yaml >out 2>log <<'PY' || fail "the finished record"
import sys
import h5py
import numpy as np

with h5py.File(sys.argv[1], "r") as f:
    assert f["spec"][()] == open(sys.argv[2], "rb").read(), "the experiment is kept verbatim"
    meta = f["meta"].attrs
    assert meta["schema_version"] == 4 and meta["complete"] == 1
    for key in ("git_revision", "cpu_model", "model", "command"):
        assert len(meta[key]) > 0, key
    points = f["points"]
    assert len(points) == 4
    assert points["status"][:].tolist() == [b"ok"] * 4
    assert points["batch.size"][:].tolist() == [1, 2, 1, 2], "an axis of numbers is numbers"
    assert points["kv.store"][:].tolist() == [b"none"] * 2 + [b"contiguous"] * 2
    assert (points["tpot.n"][:] == 2).all() and np.isfinite(points["tpot"][:]).all()
    assert np.isnan(points["ppl"][:]).all(), "what was not measured is NaN"
    index = f["runs_index"][:]
    assert len(index) == 8 and (index["file"] == b"").all()
    tables = 0
    for row in index:
        run = f["runs"]["%04d" % row["run"]]
        assert run.attrs["status"] == b"ok"
        assert run.attrs["kv_hit_ideal"] == 0 and run.attrs["kv_cached_start"] == 0
        assert run["effective"].attrs["kv.store"] in (b"none", b"contiguous")
        assert run["effective"].attrs["workload.kind"] == b"batch"
        tokens = run["tokens"][:]
        size = points["batch.size"][row["point"]]
        assert len(tokens) == 4 * size and (np.diff(np.unique(tokens["t"])) > 0).all()
        for name in ("requests", "tokens", "steps", "memory", "quality", "peaks"):
            tables += 1
            for column in run[name].dtype.names:
                for what in (".unit", ".description"):
                    assert column + what in run[name].attrs, (name, column, what)
    assert tables == 48
    # our median is the one that numpy finds
    of_point = [f["runs"]["%04d" % r["run"]] for r in index if r["point"] == 1]
    tpots = []
    for run in of_point:
        t = run["tokens"][:]
        tpots.append(np.mean([np.diff(t["t"][t["request"] == q]).mean() for q in np.unique(t["request"])]))
    assert np.isclose(np.median(tpots), points["tpot"][1], rtol=1e-12)
    # pandas needs no more than this
    for column in points.dtype.names:
        assert column + ".unit" in points.attrs and column + ".description" in points.attrs, column
PY

# A sweep that is killed: the master is there after the first run and reaches its parts through relative links.
sed -e 's/repeats: 2/repeats: 200/' small.yaml >long.yaml
mkdir before
"$DLAB" run long.yaml -m synthetic:tiny -o 'before/killed.h5' >out 2>log &
pid=$!
# The second run's line comes after the first run is in the master.
for _ in $(seq 1200); do
    ! grep -q '^\[2/' log || break
    sleep 0.05
done
kill -KILL "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
[ -e before/killed.h5 ] || fail "no master after 60 s"
mv before 'after wards'
"$DLAB_PYTHON" - 'after wards/killed.h5' >out 2>log <<'PY' || fail "the record of a killed sweep"
import sys
import h5py

with h5py.File(sys.argv[1], "r") as f:
    assert f["meta"].attrs["complete"] == 0
    index = f["runs_index"][:]
    assert 0 < len(index) < 800, len(index)
    assert any(row["file"] for row in index)
    for row in index:
        assert len(f["runs"]["%04d" % row["run"]]["tokens"]) > 0
    assert sum(f["points"]["n_runs"][:]) == len(index)
PY
"$DLAB" show 'after wards/killed.h5' >out 2>log || fail "dlab show of a killed sweep: exit $?"
