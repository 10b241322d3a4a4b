"""Objects in a bucket: the real client against an S3 server whose signatures another implementation
checks. The same steps against a folder.

Needs Node and npm; says SKIPPED otherwise.
"""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
import cluster
import s3_server
from rate import TOOLS


server_secret = s3_server.SECRET


class Client:
    def __init__(self, where, **env):
        self.where, self.env = where, env

    def run(self, *args, data=b""):
        done = subprocess.run([TOOLS / "tool_object", self.where, *args], input=data, timeout=60,
                              capture_output=True, env={**os.environ, **self.env})
        return done.returncode, done.stdout, done.stderr.decode()

    def ok(self, *args, data=b""):
        code, out, text = self.run(*args, data=data)
        assert code == 0, (args, text)
        return out

    def refused(self, error, *args, data=b""):
        code, _, text = self.run(*args, data=data)
        assert code == 1 and text.startswith(error + ":"), (args, error, text)
        return text


def s3_client(server, **env):
    return Client(server.url, **{"S3_KEY": s3_server.KEY, "S3_SECRET": s3_server.SECRET, **env})


def steps(client):
    """What every store does, in one order."""
    big = os.urandom(9 << 20)  # beyond one part of the comparison
    client.ok("put", "a/1", data=b"0123456789")
    client.ok("put", "a/1", data=b"0123456789")  # the same bytes again: nothing happens
    client.refused("ERR_CONFLICT", "put", "a/1", data=b"012345678")
    client.refused("ERR_CONFLICT", "put", "a/1", data=b"x123456789")
    client.ok("put", "a/big", data=big)
    client.ok("put", "a/big", data=big)
    client.refused("ERR_CONFLICT", "put", "a/big", data=big[:-1] + bytes([big[-1] ^ 1]))
    assert client.ok("get", "a/1", "2", "5") == b"23456"
    assert client.ok("get", "a/big", "1000", str(8 << 20)) == big[1000:1000 + (8 << 20)]
    client.refused("ERR_CORRUPT", "get", "a/1", "5", "6")
    client.refused("ERR_NOT_FOUND", "get", "a/2", "0", "1")
    client.refused("ERR_NOT_FOUND", "size", "a/2")
    assert int(client.ok("size", "a/big")) == len(big)
    client.refused("ERR_INPUT", "put", "a/../b")
    names = sorted(f"list/{i // 7}/{i}.x" for i in range(25))
    for name in names:
        client.ok("put", name, data=name.encode())
    def listed(prefix, after=""):
        lines = client.ok("list", prefix, after).decode().splitlines()
        assert all(int(size) > 0 for _, size in map(str.split, lines))
        return [line.split()[0] for line in lines]
    assert listed("list/") == names
    assert listed("list/1") == [n for n in names if n.startswith("list/1")]
    assert listed("list/", names[10]) == names[11:]
    assert listed("") == ["a/1", "a/big", *names]
    assert listed("nothing") == []
    client.ok("delete", "a/1")
    client.ok("delete", "a/1")
    client.refused("ERR_NOT_FOUND", "size", "a/1")


def main():
    with tempfile.TemporaryDirectory(prefix="embertree-test-") as folder:
        try:
            server = s3_server.S3Server(os.path.join(folder, "s3"))
        except s3_server.Missing as e:
            print(f"SKIPPED: test_s3.py: {e}")
            print("0 passed, 0 failed, 1 skipped")
            sys.exit(0)
        with server:
            def test_folder():
                steps(Client(os.path.join(folder, "objects")))

            def test_bucket():
                steps(s3_client(server))
                assert server.fail(0)["refused"] == 0

            def test_prefix_and_region():
                client = s3_client(server, S3_PREFIX="east/one/", S3_REGION="eu-central-1")
                client.ok("put", "n", data=b"1")
                assert client.ok("list", "", "").split()[0] == b"n"
                whole = s3_client(server)
                assert whole.ok("get", "east/one/n", "0", "1") == b"1"

            def test_many_pages():
                client = s3_client(server, S3_PREFIX="pages/")
                names = [f"{i:04d}" for i in range(1203)]
                os.makedirs(os.path.join(folder, "s3", s3_server.BUCKET, "pages"), exist_ok=True)
                for name in names[:-3]:  # as s3rver keeps them: a file each, faster than requests
                    path = os.path.join(folder, "s3", s3_server.BUCKET, "pages", name)
                    for kind, data in (("object", name), ("object.md5", "0" * 32),
                                       ("metadata.json", "{}")):
                        with open(f"{path}._S3rver_{kind}", "w", encoding="ascii") as f:
                            f.write(data)
                for name in names[-3:]:
                    client.ok("put", name, data=name.encode())
                assert [line.split()[0].decode()
                        for line in client.ok("list", "", "").splitlines()] == names

            def test_wrong_secret():
                text = s3_client(server, S3_SECRET="wrong").refused("ERR_CONFIG", "size", "a/big")
                assert "403" in text and "wrong" not in text, text
                text = s3_client(server, S3_BUCKET="absent").refused("ERR_CONFIG", "put", "x",
                                                                     data=b"1")
                assert "NoSuchBucket" in text, text

            def test_what_to_do_is_said():
                for hint, env in (("make the bucket", {"S3_BUCKET": "absent"}),
                                  ("the clock of this machine", {"S3_SKEW_MS": "3600000"}),
                                  ("the clock of this machine", {"S3_SKEW_MS": "-3600000"}),
                                  ("a key that is known there", {"S3_KEY": "absent"}),
                                  ("the secret key the access key's", {"S3_SECRET": "wrong"})):
                    text = s3_client(server, **env).refused("ERR_CONFIG", "put", "said", data=b"1")
                    assert hint in text, (env, text)
                    assert server_secret not in text, text

            def test_keys_change():
                """One handle, and a file of keys that is rewritten under it, that is gone for a
                moment, half written, wrong."""
                keys = os.path.join(folder, "keys")

                def write(*lines):
                    with open(keys, "w", encoding="ascii") as f:
                        f.write("".join(line + "\n" for line in lines))

                s3_client(server).ok("put", "turned", data=b"12345")
                write(s3_server.KEY, "an old secret")
                with subprocess.Popen([TOOLS / "tool_object", server.url, "turns", "turned"], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      env={**os.environ, "S3_KEYS_FILE": keys}) as child:
                    def ask():
                        child.stdin.write("\n")
                        child.stdin.flush()
                        return child.stdout.readline().strip()

                    assert ask().startswith("ERR_CONFIG: "), "keys that do not hold yet"
                    write(s3_server.KEY, s3_server.SECRET)
                    assert ask() == "5"
                    write(s3_server.KEY)
                    assert ask() == "5", "half a file"
                    os.unlink(keys)
                    assert ask() == "5", "no file"
                    write(s3_server.KEY, "revoked")
                    assert ask().startswith("ERR_CONFIG: ")
                    write(s3_server.KEY, s3_server.SECRET)
                    assert ask() == "5"
                    child.stdin.close()
                    assert child.wait(20) == 0
                os.unlink(keys)
                s3_client(server, S3_KEYS_FILE=keys).refused("ERR_NOT_FOUND", "size", "turned")
                write("only one line")
                s3_client(server, S3_KEYS_FILE=keys).refused("ERR_CONFIG", "size", "turned")

            def test_a_server_says_it():
                """Wrong keys are known from the start, not when the first data are old enough. A server
                that runs serves on, and needs no restart when the keys are right."""
                keys = os.path.join(folder, "server-keys")
                with open(keys, "w", encoding="ascii") as f:
                    f.write(f"{s3_server.KEY}\nwrong\n")
                with cluster.AllInOne(f"--cold.url=s3://{s3_server.BUCKET}/said", "--cold.s3-path-style",
                                      f"--cold.s3-endpoint={server.url}", f"--cold.s3-credentials-file={keys}",
                                      "--cold.interval=1s", "--cold.backup-interval=0s") as one:
                    def cold():
                        return one.process.get("/ring").json()["roles"]["ingester"]["cold"]

                    def wait_until(what):
                        until = time.monotonic() + 90
                        while not what():
                            assert time.monotonic() < until, (cold(), one.process.tail())
                            time.sleep(0.1)

                    wait_until(lambda: cold()["failing"])
                    assert "SignatureDoesNotMatch" in cold()["why"], cold()
                    wait_until(lambda: one.process.metric("embertree_cold_failing") == 1)
                    assert one.process.get("/readyz").status == 200
                    assert one.process.log.read_text().count("cannot be used") == 1
                    with open(keys, "w", encoding="ascii") as f:
                        f.write(f"{s3_server.KEY}\n{s3_server.SECRET}\n")
                    wait_until(lambda: not cold()["failing"])
                    wait_until(lambda: one.process.metric("embertree_cold_failing") == 0)
                    assert "can be used again" in one.process.log.read_text()

            def test_failures_are_tried_again():
                client = s3_client(server)
                for status in (503, 500, 429, 0):
                    server.fail(2, status)
                    client.ok("put", f"again/{status}", data=b"x" * 100000)
                    server.fail(2, status)
                    assert client.ok("get", f"again/{status}", "99999", "1") == b"x"
                server.fail(100)
                text = client.refused("ERR_UNAVAILABLE", "size", "again/503")
                assert "tried 5 times" in text, text
                server.fail(0)
                server.fail(1, 400)  # would be refused again: is not tried again
                client.refused("ERR_CONFIG", "size", "again/503")
                assert int(client.ok("size", "again/503")) == 100000

            cluster.main([test_folder, test_bucket, test_prefix_and_region, test_many_pages,
                          test_wrong_secret, test_what_to_do_is_said, test_keys_change, test_a_server_says_it,
                          test_failures_are_tried_again])


if __name__ == "__main__":
    main()
