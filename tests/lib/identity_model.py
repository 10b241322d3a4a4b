"""Which identity may use which route, a second reading: of the table of routes and the order of checks that the product promises
(common/identity/README.md, and the design it is of), not of its code. The columns are the design's: role, tenants (1,
n for up to 32, - for none), and what an identity gets that may see only some series (c conjoined, o its own, x refused).

Keys are made here, too, by the form that is promised for scanners of source code: base 62, CRC-32, HMAC-SHA256.
"""
import binascii
import dataclasses
import hashlib
import hmac
import random
import re
import secrets

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

TABLE = """
GET  /healthz /readyz /ready /*                                                             open - -
POST /grpc.health.v1.Health/Check                                                           open - -
POST /grpc.health.v1.Health/{Watch,*} /version.v1.Version/Version                           any - -
POST /capabilities.v1.FeatureFlagsService/{GetFeatureFlags,*} /vcs.v1.VCSService/*          any - -
POST /push.v1.PusherService/* /parca.profilestore.v1alpha1.ProfileStoreService/*            any - -
POST /opentelemetry.proto.collector.profiles.{v1development,v1experimental}.ProfilesService/*  any - -
POST /parca.debuginfo.v1alpha1.DebuginfoService/* /debuginfo.v1alpha1.DebuginfoService/*    any - -
POST /adhocprofiles.v1.AdHocProfileService/* /querier.v1.QuerierService/*                   any - -
POST /settings.v1.{SettingsService,RecordingRulesService}/*                                 any - -
GET  /metrics                                                                               scrape,server-admin - -
GET  /config /ring /runtime_config /api/v1/forward                                          server-admin - -
GET  /debug/pprof /debug/pprof/{*,profile,heap}                                             server-admin - -
GET  /api/v1/cluster/{places,progress,rebalance,kept}                                       server-admin - -
POST /api/v1/cluster/{nodes/*,services,tenants,rebalance,recover}                           server-admin - x
POST /api/v1/ledger/accept                                                                  server-admin 1 x
POST /ingest /pyroscope/ingest /push.v1.PusherService/Push /api/v1/import                   push 1 -
POST /v1development/profiles /v1experimental/profiles                                       push 1 -
POST /opentelemetry.proto.collector.profiles.{v1development,v1experimental}.ProfilesService/Export  push 1 -
POST /parca.profilestore.v1alpha1.ProfileStoreService/{WriteRaw,WriteArrow,Write}           push 1 -
POST /parca.debuginfo.v1alpha1.DebuginfoService/{ShouldInitiateUpload,InitiateUpload}       push 1 -
POST /parca.debuginfo.v1alpha1.DebuginfoService/{MarkUploadFinished,Upload}                 push 1 -
POST /debuginfo.v1alpha1.DebuginfoService/{ShouldInitiateUpload,UploadFinished,Upload/*}    push 1 -
POST /debuginfo.v1alpha1.DebuginfoService/DeleteDebuginfo                                   delete 1 x
GET  /pyroscope/{render,render-diff,label-values} /render /render-diff /label-values        read n c
GET  /api/exemplars:query /labels /api/apps                                                 read n c
POST /merge /api/exemplars:merge                                                            read n c
GET  /api/v1/{functions,functions/grew,top,focus,sandwich,subtree,diff}                     read n c
POST /querier.v1.QuerierService/{ProfileTypes,LabelNames,LabelValues,Series,Diff}           read n c
POST /querier.v1.QuerierService/{SelectMergeStacktraces,SelectSeries,SelectHeatmap}         read n c
POST /querier.v1.QuerierService/{SelectMergeSpanProfile,SelectMergeProfile}                 read n c
POST /querier.v1.QuerierService/{GetProfileStats,AnalyzeQuery}                              read n c
GET  /api/v1/{space,ledger,deletes,targets,tenant_limits} /api/annotations                  read 1 x
POST /debuginfo.v1alpha1.DebuginfoService/ListDebuginfo /settings.v1.SettingsService/Get    read 1 x
POST /settings.v1.RecordingRulesService/{GetRecordingRule,ListRecordingRules}               read 1 x
POST /api/annotations /settings.v1.SettingsService/{Set,Delete}                             edit,tenant-admin 1 x
DELETE /api/annotations                                                                     edit,tenant-admin 1 x
POST /settings.v1.RecordingRulesService/{UpsertRecordingRule,DeleteRecordingRule}           edit,tenant-admin 1 x
POST /api/v1/delete                                                                         delete 1 c
GET  /api/v1/adhoc /api/v1/adhoc/*                                                          read 1 o
POST /adhocprofiles.v1.AdHocProfileService/{Get,List,Diff}                                  read 1 o
POST /api/v1/adhoc /adhocprofiles.v1.AdHocProfileService/Upload                             edit 1 o
DELETE /api/v1/adhoc/*                                                                      edit 1 o
GET  /api/v1/keys                                                                           tenant-admin,server-admin - x
POST /api/v1/keys /api/v1/keys/*                                                            tenant-admin,server-admin - x
DELETE /api/v1/keys/*                                                                       tenant-admin,server-admin - x
"""


def spread(path):
    """'/a/{b,c}' -> '/a/b', '/a/c'."""
    found = re.search(r"\{([^}]*)\}", path)
    if not found:
        return [path]
    return [p for word in found[1].split(",") for p in spread(path[:found.start()] + word + path[found.end():])]


@dataclasses.dataclass(frozen=True)
class Route:
    method: str
    path: str
    roles: tuple
    tenants: str
    label: str

    @property
    def rpc(self):
        return "." in self.path.split("/")[1]


def routes():
    for line in TABLE.strip().splitlines():
        method, *paths, roles, tenants, label = line.split()
        for path in paths:
            for one in spread(path):
                yield Route(method, one, tuple(roles.split(",")), tenants, label)


# ---- keys ------------------------------------------------------------------------------------------------------------

def base62(number, length):
    out = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        out = DIGITS[digit] + out
    return out


def key_text(kind="k"):
    """A new key: id, secret, text."""
    ident = "".join(secrets.choice(DIGITS) for _ in range(12))
    secret = base62(int.from_bytes(secrets.token_bytes(32), "big"), 43)
    begin = f"emb_{kind}{ident}_{secret}"
    return ident, secret, begin + base62(binascii.crc32(begin.encode()), 6)


def offline_hash(ident, secret):
    return "offline:" + hmac.new(bytes(32), f"embertree key 1{ident}{secret}".encode(), hashlib.sha256).hexdigest()


@dataclasses.dataclass
class Grant:
    tenants: tuple  # "*" among them: all
    roles: tuple
    match: str = ""
    edit: bool = False
    set: tuple = ()

    def entry(self):
        out = {"tenants": list(self.tenants), "roles": list(self.roles)}
        if self.match:
            out["match"] = self.match
        if self.edit:
            out["edit"] = True
        if self.set:
            out["set"] = dict(self.set)
        return out

    def covers(self, tenant):
        return "*" in self.tenants or tenant in self.tenants

    def has(self, role):
        return role in self.roles or ("tenant-admin" in self.roles and role in ("push", "read", "delete"))


@dataclasses.dataclass
class Key:
    name: str
    grants: tuple = ()
    fault: str = ""  # why it proves nothing: none, unknown, expired, revoked, address
    text: str = ""
    more: dict = dataclasses.field(default_factory=dict)  # of its entry in the file

    def any_has(self, role, tenant):
        return any(g.covers(tenant) and g.has(role) for g in self.grants)

    def only_tenant(self):
        named = {t for g in self.grants for t in g.tenants}
        return next(iter(named)) if len(named) == 1 and "*" not in named else None


# ---- the rules -------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Verdict:
    status: int = 0  # 0: the handler answers
    reason: str = ""
    tenants: tuple = ()


NAME = re.compile(r"[A-Za-z0-9!\-_.*'()]{1,150}")
GRPC = {401: 16, 403: 7, 429: 8, 503: 14, 400: 3}


def named(text, many):
    """Tenants of a header, or the reason why not."""
    out = []
    for part in text.strip().split("|"):
        part = part.partition(":")[0]
        if not part:
            return "no_tenant"
        if not NAME.fullmatch(part) or part in (".", ".."):
            return "tenant_name"
        if part not in out:
            out.append(part)
        if len(out) > many:
            return "tenant_name"
    return tuple(sorted(out))


def role_in(route, key, tenant):
    """The roles of the route that the key has in a tenant, as (role, is it for all series?)."""
    for role in route.roles:
        for g in key.grants:
            if not g.covers(tenant):
                continue
            if role == "edit" and g.has("read") and any(
                    o.edit and o.has("read") and o.covers(tenant) for o in key.grants):
                yield role, not g.match
            elif role != "edit" and g.has(role):
                yield role, not g.match or role in ("push", "server-admin", "scrape", "gateway")


def decide(route, key, header=None, user="", twice=False):
    """What a request hears. `header` is X-Scope-OrgID, `user` the user name of Basic; twice: two such headers."""
    if route.roles == ("open",):
        return Verdict()
    if twice:
        return Verdict(400, "headers")
    if key.fault:
        return Verdict(401, key.fault)
    if route.tenants == "-":
        if route.roles == ("any",) or any(r in g.roles for r in route.roles for g in key.grants):
            return Verdict()
        return Verdict(403, "role")
    gateway = any("gateway" in g.roles for g in key.grants)
    wish = (header or "").strip()
    if not wish and not gateway:
        wish = key.only_tenant() or user
    if not wish:
        return Verdict(400, "no_tenant")
    tenants = named(wish, 1 if route.tenants == "1" else 32)
    if isinstance(tenants, str):
        return Verdict(400, tenants)
    if not all(any(g.covers(t) for g in key.grants) for t in tenants):
        return Verdict(403, "tenant")
    if not all(list(role_in(route, key, t)) for t in tenants):
        return Verdict(403, "role")
    if route.label == "x" and not all(any(whole for _, whole in role_in(route, key, t)) for t in tenants):
        return Verdict(403, "scoped_key")
    return Verdict(0, "", tenants)


def pick_header(rng: random.Random, tenants):
    """X-Scope-OrgID, or None."""
    a, b = rng.choice(tenants), rng.choice(tenants)
    return rng.choice([None, None, a, a, a, f"{a}|{b}", f"{a}:x", f" {a} ", "other", f"{a}|other", "", "../etc", f"{a}|",
                       "|".join(f"t{i}" for i in range(33))])
