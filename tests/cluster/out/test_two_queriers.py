"""Two queriers behind one name: what one of them works on in the background, the other tells."""
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster

METHOD = "/querier.v1.QuerierService/SelectMergeStacktraces"


def ask(process, tenant, **more):
    now = int(time.time() * 1000)
    body = {"profileTypeID": cluster.CPU_TYPE, "labelSelector": '{service_name="svc"}',
            "start": now - 600_000, "end": now + 60_000} | more
    return process.post(METHOD, json.dumps(body), {"Content-Type": "application/json", "X-Scope-OrgID": tenant}).json()


def test_background_queries():
    with cluster.FourProcesses("--tenancy.multi=true") as four:
        first = four.reader
        ingester = next(o for o in first.options if o.startswith("--cluster.ingesters="))
        second = cluster.Process("embertree-querier", f"--querier.listen=tcp://127.0.0.1:{cluster.free_port()}",
                                 ingester, "--tenancy.multi=true",
                                 folder=four.folder / "querier-2")
        four.processes.append(second)
        second.start()
        r = four.ingest(b"main;a 3\nmain;b 4\n", name="svc.cpu", headers={"X-Scope-OrgID": "t"})
        assert r.status == 200, r
        plain = ask(first, "t")["flamegraph"]
        assert plain["total"] == "70000000", plain
        for one, other in ((first, second), (second, first)):
            id_ = ask(one, "t", **{"async": {"type": "ASYNC_QUERY_TYPE_FORCE"}})["async"]["requestId"]
            for _ in range(100):
                a = ask(other, "t", **{"async": {"requestId": id_}})
                if a["async"]["status"] != "ASYNC_QUERY_STATUS_IN_PROGRESS":
                    break
                time.sleep(0.1)
            assert a["async"] == {"requestId": id_, "status": "ASYNC_QUERY_STATUS_SUCCESS"}, a
            assert a["flamegraph"] == plain
            assert ask(other, "u", **{"async": {"requestId": id_}})["code"] == "not_found"
        second.stop()  # the other querier answers with what this one found
        assert ask(first, "t", **{"async": {"requestId": id_}})["flamegraph"] == plain


if __name__ == "__main__":
    cluster.main([test_background_queries])
