"""Reading jobs and nodes: any file of the fixed form, and errors that name the cell."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from windlass.core.errors import InvalidInput
from windlass.scheduler.simulate.traces import JOB_FORM, read_jobs, read_nodes, split
from windlass.scheduler.simulate.workload import UNLIMITED

GIB = 2**30


def put(folder: Path, text: str | bytes, name: str = "jobs.csv") -> str:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_a_row_with_every_column_is_read_as_it_stands(tmp_path: Path) -> None:
    row = "a,1.5,60,4,2,0.5,1.5,t,u,70,90.25,notebook,2,8,,A100|H100"
    (job,) = read_jobs(put(tmp_path, ",".join(JOB_FORM) + "\n" + row + "\n"))
    need = job.needs[0]
    assert (job.name, job.submit_ms, job.duration_ms, job.workers) == ("a", 1500, 60_000, 4)
    assert (need.count, need.minimum, need.gpus, need.gpu_milli) == (8, 2, 2, 0)
    assert (need.cpus_milli, need.memory_bytes) == (500, GIB * 3 // 2)
    assert need.gpu_models == ("A100", "H100")
    assert (job.tenant, job.user, job.priority, job.kind) == ("t", "u", 70, "notebook")
    assert job.walltime_ms == 90_250


def test_absent_columns_and_empty_cells_have_defaults(tmp_path: Path) -> None:
    jobs = read_jobs(put(tmp_path, "duration_s,gpus,priority\n10,,\n20,1,0\n"))
    assert [job.name for job in jobs] == ["line-2", "line-3"]
    assert [job.priority for job in jobs] == [50, 0]
    assert jobs[0].submit_ms == 0 and jobs[0].workers == 1 and jobs[0].tenant == "default"
    assert jobs[0].walltime_ms is None and jobs[0].kind == "train"
    assert jobs[0].needs[0].gpus == 0 and jobs[1].needs[0].gpus == 1


def test_gzip_a_byte_order_mark_blank_lines_and_carriage_returns_are_no_matter(
    tmp_path: Path,
) -> None:
    text = "\ufeffJob, submit_s ,duration_s\r\n\r\na,5,1\r\n,,\r\nb,2,1\r\n   \r\n"
    plain = read_jobs(put(tmp_path, text))
    packed = read_jobs(put(tmp_path, gzip.compress(text.encode()), "jobs.csv.gz"))
    assert [job.name for job in plain] == ["b", "a"] == [job.name for job in packed]


def test_equal_shapes_are_one_object(tmp_path: Path) -> None:
    jobs = read_jobs(put(tmp_path, "duration_s,gpus\n1,1\n2,1\n3,2\n"))
    assert jobs[0].needs is jobs[1].needs
    assert jobs[0].needs is not jobs[2].needs


@pytest.mark.parametrize(
    ("gpus", "milli", "expected"),
    [("", "500", (0, 500)), ("1", "460", (0, 460)), ("2", "1000", (2, 0)), ("0", "1000", (1, 0)),
     ("2", "0", (2, 0)), ("", "", (0, 0))],
)  # fmt: skip
def test_gpu_milli_below_1000_is_a_share_of_one(
    tmp_path: Path, gpus: str, milli: str, expected: tuple[int, int]
) -> None:
    (job,) = read_jobs(put(tmp_path, f"duration_s,gpus,gpu_milli\n1,{gpus},{milli}\n"))
    assert (job.needs[0].gpus, job.needs[0].gpu_milli) == expected


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        ("", "", (4, 0)), ("2", "", (4, 2)), ("", "8", (8, 4)), ("2", "8", (8, 2)),
        ("4", "4", (4, 0)),
    ],
)  # fmt: skip
def test_an_elastic_job_has_a_minimum_and_a_maximum(
    tmp_path: Path, least: str, most: str, expected: tuple[int, int]
) -> None:
    text = f"duration_s,workers,min_workers,max_workers\n1,4,{least},{most}\n"
    (job,) = read_jobs(put(tmp_path, text))
    assert (job.needs[0].count, job.needs[0].minimum) == expected
    assert job.workers == 4


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("submit_s", "-1"), ("submit_s", "nan"), ("submit_s", "inf"), ("submit_s", "1e300"),
        ("submit_s", "soon"), ("duration_s", "-0.5"), ("duration_s", "1_000"),
        ("duration_s", "NaN"), ("duration_s", "99999999999999999999"), ("workers", "0"),
        ("workers", "-3"), ("workers", "1.5"), ("workers", "10000000000"), ("gpus", "-1"),
        ("gpus", "0.5"), ("gpus", "x"), ("cpus", "-1"), ("cpus", "lots"), ("memory_gb", "-2"),
        ("memory_gb", "8GB"), ("priority", "high"), ("priority", "2000000"), ("walltime_s", "0"),
        ("walltime_s", "-5"), ("kind", "batch"), ("min_workers", "0"), ("min_workers", "5"),
        ("max_workers", "3"), ("gpu_milli", "1001"), ("gpu_milli", "-1"), ("gpu_milli", "500"),
    ],
)  # fmt: skip
def test_a_bad_cell_is_named_with_file_line_column_and_value(
    tmp_path: Path, column: str, value: str
) -> None:
    good = {"duration_s": "1", "workers": "4", "gpus": "2", "job": "j"}
    cells = {**good, column: value}
    head = ",".join(cells)
    first = {**good, "job": "first"}
    text = (
        f"{head}\n{','.join(first.get(name, '') for name in cells)}\n{','.join(cells.values())}\n"
    )
    path = put(tmp_path, text)
    with pytest.raises(InvalidInput) as err:
        read_jobs(path)
    for word in (path, "line 3", f"column {column}", repr(value), " is not "):
        assert word in err.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("duration_s\n", "has a header but no job"),
        ("job,submit_s\na,1\n", "column 'duration_s' is missing"),
        ("duration_s,gpu\n1,1\n", "unknown column 'gpu'; known: job, submit_s"),
        ("duration_s,gpus,gpus\n1,1,1\n", "'gpus' is there twice"),
        ("job,duration_s\na,1\nb,1\na,2\n", "line 4, column job: 'a' is not unique: line 2"),
        ("job,duration_s\na,1,9\n", "line 2 has 3 cells, the header has 2"),
        ("job,duration_s,gpus\na,1\n", "line 2 has 2 cells, the header has 3"),
        ("job,duration_s\na,\n", "line 2, column duration_s: '' is not a number"),
        ('job,duration_s\n"a,1\n', "is not CSV"),
    ],
)
def test_a_file_that_is_wrong_as_a_whole_says_how(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as err:
        read_jobs(put(tmp_path, text))
    assert words in err.value.message


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_jobs(str(tmp_path / "none.csv"))
    with pytest.raises(InvalidInput, match="cut off"):
        read_jobs(put(tmp_path, gzip.compress(b"duration_s\n" + b"1\n" * 999)[:-9]))
    with pytest.raises(InvalidInput, match="line 2 is not UTF-8"):
        read_jobs(put(tmp_path, b"duration_s\n\xff\xfe\n"))


def test_limit_takes_the_first_by_submit_time(tmp_path: Path) -> None:
    path = put(tmp_path, "job,submit_s,duration_s\nc,3,1\na,1,1\nb,2,1\n")
    assert [job.name for job in read_jobs(path, limit=2)] == ["a", "b"]


def test_a_row_of_nodes_stands_for_count_of_them(tmp_path: Path) -> None:
    text = (
        "node,count,cpus,memory_gb,gpus,gpu_model,rack,block\ng,2,96,512,8,H100,r1,b1\nc,,4,,,,,\n"
    )
    offers = read_nodes(put(tmp_path, text, "nodes.csv"))
    assert [offer.name for offer in offers] == ["g-0", "g-1", "c"]
    assert (offers[0].cpus_milli, offers[0].memory_bytes) == (96_000, 512 * GIB)
    assert (offers[0].gpus, offers[0].gpu_model) == (8, "H100")
    assert (offers[0].rack, offers[0].block) == ("r1", "b1")
    assert offers[2].memory_bytes == UNLIMITED and offers[2].gpus == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node,count\nn,0\n", "describes no node"),
        ("node,count\nn,-1\n", "line 2, column count: '-1' is not"),
        ("node,gpus\nn,1\nn,2\n", "line 3, column node: 'n' is not unique: line 2"),
        ("node,gpu\nn,1\n", "unknown column 'gpu'"),
        ("", "is empty"),
    ],
)
def test_bad_nodes_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidInput) as err:
        read_nodes(put(tmp_path, text, "nodes.csv"))
    assert words in err.value.message


def test_the_gpus_of_a_philly_job_are_split_into_workers_that_fit_a_node(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,num_gpus,vc\n0,0,10,8,a\n1,5,10,24,b\n2,6,10,12,b\n"
    jobs = read_jobs(put(tmp_path, text), node_gpus=8)
    assert [(job.workers, job.needs[0].gpus) for job in jobs] == [(1, 8), (3, 8), (2, 6)]
    assert [job.tenant for job in jobs] == ["a", "b", "b"]
    assert split(8, 4) == 4 and split(7, 4) == 1 and split(0, 8) == 0


def test_alibaba_pods_and_nodes_are_known_by_their_header(tmp_path: Path) -> None:
    head = (
        "pod_id,create_s,sched_s,delete_s,cpu_milli,mem_mib,num_gpu,gpu_milli,gpu_spec,qos,phase"
    )
    rows = (
        "0,0,5,100,12000,16384,1,1000,,LS,Running\n1,3,,50,500,1024,1,460,T4|V100M16,BE,Failed\n"
    )
    jobs = read_jobs(put(tmp_path, f"{head}\n{rows}"))
    assert [job.duration_ms for job in jobs] == [95_000, 47_000]
    assert (jobs[0].needs[0].gpus, jobs[1].needs[0].gpu_milli) == (1, 460)
    assert jobs[1].needs[0].gpu_models == ("T4", "V100M16")
    nodes = "node_id,cpu_milli,mem_mib,gpus,gpu_model\n0,32000,262144,0,\n1,96000,1024,8,T4\n"
    offers = read_nodes(put(tmp_path, nodes, "nodes.csv"))
    assert [offer.gpus for offer in offers] == [0, 8]
    assert offers[1].memory_bytes == GIB


def test_a_log_of_the_parallel_archive_has_a_worker_for_each_processor(tmp_path: Path) -> None:
    head = "job_id,submit_s,wait_s,run_s,procs_used,procs_req,walltime_req_s,status,user"
    text = f"{head}\n1,0,9,100,30,30,200,1,7\n2,1,9,-1,2,2,60,-1,8\n3,2,9,5,2,-1,-1,1,8\n"
    jobs = read_jobs(put(tmp_path, text))
    assert [(job.name, job.workers, job.user) for job in jobs] == [("1", 30, "7"), ("3", 2, "8")]
    assert [job.walltime_ms for job in jobs] == [200_000, None]
    assert jobs[0].needs[0].cpus_milli == 1000
