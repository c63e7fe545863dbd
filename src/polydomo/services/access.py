"""The table of access: which verb everything that a peer can ask of the broker needs, and at which object.

Three doors have entries: the tasks of the broker's own services, the routes of HTTP, and the commands of the dialects.
A task or a route without an entry cannot be added. `services.authorizer` decides by these rules;
docs/reference/access.md is made from them.

A rule names its object (`about`) and, where a request names that object, the argument or the part of the path
(`argument`). What is asked of the core anyway (`ASKED_BY_CORE`) is not asked twice: there a rule only states what the
core does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from polydomo.core.principals import ADMINISTER, CALL, CANCEL, DELEGATE, OBSERVE, OPERATE, READ, SERVE

# Objects of rules.

NOTHING: Final = "nothing"  # everybody may do it
BROKER: Final = "broker"  # the broker as a whole: the service `*`
SERVICE: Final = "service"  # the service that the argument names; for a fixed service, `fixed`
WORKERS: Final = "workers"  # all services of the workers that the arguments name
JOB: Final = "job"  # the job with the id in the argument: its owner may, others need the verb for its service
ROWS: Final = "rows"  # each row of a list: those of others are left out without the verb
INVENTORY: Final = (
    "inventory"  # the inventory of the worker in the argument: its own, or the verb for the broker
)
SUBMIT: Final = "submit"  # the job's service and target, which the core asks for in `Broker.submit`
REGISTER: Final = (
    "register"  # the worker's services and name, which the core asks for in `Workers.may_register`
)
OWN_JOB: Final = "own job"  # as JOB, which the core asks for in `Jobs.job_for`
OWN_WORKER: Final = "own worker"  # the worker of the same principal, or its attempt

ASKED_BY_CORE: Final = (SUBMIT, REGISTER, OWN_JOB, OWN_WORKER)

# Objects for which a door asks nothing: the core does, the rows are chosen later, or there is nothing to ask.
NOT_ASKED: Final = (*ASKED_BY_CORE, ROWS, NOTHING)

# Verbs whose use is an administrative act, at any object. `CANCEL` is one for jobs of others.
ADMINISTRATIVE: Final = (OPERATE, ADMINISTER)

# The broker's own services that have no tasks of their own.
FILES: Final = b"fss.service.broker"
MEMODB: Final = b"memodb"


class Rule(NamedTuple):
    """Requirement of one task, route or command: one of `verbs` at an object."""

    verbs: tuple[str, ...]
    about: str
    argument: str = ""  # that names the object
    fixed: bytes = b""  # the service, if it is always the same
    name: str = ""  # argument with the name that the verb is asked for, as for a service's worker
    act: bool = False  # an administrative act although its verb is none
    reads: bool = False  # it changes nothing: it is recorded if that can be, and done in any case

    @property
    def is_act(self) -> bool:
        """Return whether its use is an administrative act, at least if the object is another principal's."""
        return self.act or any(verb in ADMINISTRATIVE for verb in self.verbs)

    def describe(self) -> str:
        """Return the object in words."""
        if self.fixed:
            at = f", name `{{{self.name}}}`" if self.name else ""
            return f"the service `{self.fixed.decode()}`{at}"
        words = {
            NOTHING: "",
            BROKER: "the broker: `*`",
            SERVICE: f"the service in `{self.argument}`",
            WORKERS: "all services of the workers that are named",
            JOB: f"the job in `{self.argument}`; its owner always may",
            ROWS: "each row; without the verb only the principal's own",
            INVENTORY: "the broker: `*`; for its own name and its own workers a principal always may",
            SUBMIT: "the job's service, and the workers that it names",
            REGISTER: "each service that the worker offers, and its name",
            OWN_JOB: "the job's service; its owner always may",
            OWN_WORKER: "the principal's own worker",
        }
        return words[self.about]


OPEN: Final = Rule((), NOTHING)


def _broker(verb: str) -> Rule:
    return Rule((verb,), BROKER)


def _service(verb: str, argument: str) -> Rule:
    return Rule((verb,), SERVICE, argument)


def _rows(*verbs: str) -> Rule:
    return Rule(verbs, ROWS)


_READS_ALL: Final = Rule((ADMINISTER,), BROKER, reads=True)
_CALLS_FILES: Final = Rule((CALL,), SERVICE, fixed=FILES)
_SUBMITS: Final = Rule((CALL,), SUBMIT)
_USES_VALUES: Final = Rule((CALL, SERVE), SERVICE, fixed=MEMODB)
_CHANGES_VALUES: Final = Rule((OPERATE,), SERVICE, fixed=MEMODB)

# Tasks of the broker's own services, by service.
TASKS: Final[dict[str, dict[str, Rule]]] = {
    "mmi.service.broker": {
        "show_broker": _broker(OBSERVE),
        "show_services": _rows(OBSERVE),
        "show_workers": _rows(OBSERVE),
        "show_clients": _rows(OBSERVE),
        "show_jobs": _rows(OBSERVE),
        "pause_service": _service(OPERATE, "name"),
        "resume_service": _service(OPERATE, "name"),
        "show_memos": _rows(OBSERVE),
        "forget_memos": _service(OPERATE, "name"),
        "restart": _broker(ADMINISTER),
        "shutdown": _broker(ADMINISTER),
        "disconnect": Rule((OPERATE,), WORKERS),
        "get_stats": _broker(OBSERVE),
        "get_status": _broker(OBSERVE),
        "get_logs": _READS_ALL,
        "show_broker_version": _broker(OBSERVE),
        "show_broker_inventory": _READS_ALL,
        "show_resources": _rows(OBSERVE),
        "set_resources": Rule((OPERATE,), WORKERS),
        "share_out": _service(OPERATE, "service"),
        "show_stored_jobs": _rows(OBSERVE),
        "show_stored_job": Rule((READ,), JOB, "id"),
        "show_dead_letters": _rows(OBSERVE),
        "cancel_job": Rule((CANCEL,), JOB, "id", act=True),
        "resend_job": Rule((OPERATE,), JOB, "id"),
        "forget_job": Rule((OPERATE,), JOB, "id"),
        "scan_bounds": _broker(OBSERVE),
        "scan_jobs": _rows(OBSERVE, READ),
        "scan_endings": _rows(OBSERVE, READ),
        "scan_events": _rows(READ),
        "trace_jobs": _rows(OBSERVE),
    },
    "sid.service.broker": {
        "get_inventory": Rule((ADMINISTER,), INVENTORY, "name", reads=True),
        "show_inventory": Rule((ADMINISTER,), INVENTORY, "name", reads=True),
        "list_inventory": _READS_ALL,
        "reload": _broker(ADMINISTER),
    },
    "fss.service.broker": {
        "list_files": _CALLS_FILES,
        "walk": _CALLS_FILES,
        "file_details": _CALLS_FILES,
        "fetch_file": _CALLS_FILES,
    },
    "filesharing": {
        "list_files": _SUBMITS,
        "walk": _SUBMITS,
        "file_details": _SUBMITS,
        "fetch_file": _SUBMITS,
        "get_status": _SUBMITS,
        "get_version": _SUBMITS,
        "get_inventory": _SUBMITS,
        "get_stats": _SUBMITS,
    },
    "mmi.service": {"": _rows(CALL, OBSERVE)},
}

_JOBS: Final = Rule((READ,), OWN_JOB)
_POLLS: Final = Rule((SERVE,), REGISTER)
_WORKS: Final = Rule((SERVE,), OWN_WORKER)

# Routes of HTTP, by method and path.
ROUTES: Final[dict[tuple[str, str], Rule]] = {
    # Jobs
    ("POST", "/v1/services/{service:path}/jobs"): _SUBMITS,
    ("POST", "/v1/services/{service:path}/bulk"): _SUBMITS,
    ("GET", "/v1/jobs"): _rows(OBSERVE),
    ("GET", "/v1/jobs/{id}"): _JOBS,
    ("GET", "/v1/jobs/{id}/result"): _JOBS,
    ("GET", "/v1/jobs/{id}/events"): _JOBS,
    ("DELETE", "/v1/jobs/{id}"): Rule((CANCEL,), JOB, "id", act=True),
    ("GET", "/v1/dead"): _rows(OBSERVE),
    ("GET", "/v1/dead/{id}"): Rule((READ,), JOB, "id"),
    ("POST", "/v1/dead/{id}/resend"): Rule((OPERATE,), JOB, "id"),
    ("DELETE", "/v1/dead/{id}"): Rule((OPERATE,), JOB, "id"),
    # Workers
    ("POST", "/v1/workers/poll"): _POLLS,
    ("DELETE", "/v1/workers/{name:path}"): _WORKS,
    ("POST", "/v1/attempts/{token}/partials"): _WORKS,
    ("POST", "/v1/attempts/{token}/events"): _WORKS,
    ("POST", "/v1/attempts/{token}/heartbeat"): _WORKS,
    ("PUT", "/v1/attempts/{token}/result"): _WORKS,
    ("PUT", "/v1/attempts/{token}/failure"): _WORKS,
    # The broker
    ("GET", "/v1/services"): _rows(OBSERVE),
    ("GET", "/v1/services/{service:path}/memo"): _service(OBSERVE, "service"),
    ("DELETE", "/v1/services/{service:path}/memo"): _service(OPERATE, "service"),
    ("POST", "/v1/services/{service:path}/pause"): _service(OPERATE, "service"),
    ("POST", "/v1/services/{service:path}/resume"): _service(OPERATE, "service"),
    ("GET", "/v1/services/{service:service}"): _service(OBSERVE, "service"),
    ("GET", "/v1/broker"): _broker(OBSERVE),
    ("GET", "/v1/workers"): _rows(OBSERVE),
    ("GET", "/v1/clients"): _rows(OBSERVE),
    ("GET", "/metrics"): _broker(OBSERVE),
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/v1/inventory"): _READS_ALL,
    ("POST", "/v1/inventory"): _broker(ADMINISTER),
    ("GET", "/v1/inventory/{worker:path}"): Rule((ADMINISTER,), INVENTORY, "worker", reads=True),
    ("GET", "/v1/files"): _CALLS_FILES,
    ("GET", "/v1/files/{path:path}"): _CALLS_FILES,
    # Documentation
    ("GET", "/"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/problems"): OPEN,
    ("GET", "/problems/{reason}"): OPEN,
    # MemoDB
    ("POST", "/memodb/v1/cid"): _USES_VALUES,
    ("GET", "/memodb/v1/cid/{cid}"): _USES_VALUES,
    ("DELETE", "/memodb/v1/cid/{cid}"): _CHANGES_VALUES,
    ("GET", "/memodb/v1/head"): _USES_VALUES,
    ("GET", "/memodb/v1/head/{name:path}"): _USES_VALUES._replace(name="name"),
    ("PUT", "/memodb/v1/head/{name:path}"): _CHANGES_VALUES._replace(name="name"),
    ("DELETE", "/memodb/v1/head/{name:path}"): _CHANGES_VALUES._replace(name="name"),
    ("GET", "/memodb/v1/call"): _rows(CALL, OBSERVE),
    ("GET", "/memodb/v1/call/{func}"): Rule((CALL, OBSERVE), SERVICE, "func"),
    ("DELETE", "/memodb/v1/call/{func}"): _service(OPERATE, "func"),
    ("GET", "/memodb/v1/call/{func}/{args}"): Rule((CALL, READ), SERVICE, "func"),
    ("PUT", "/memodb/v1/call/{func}/{args}"): _service(SERVE, "func"),
    ("DELETE", "/memodb/v1/call/{func}/{args}"): _service(OPERATE, "func"),
    ("POST", "/memodb/v1/call/{func}/{args}/evaluate"): _service(CALL, "func"),
    ("POST", "/memodb/v1/worker"): _POLLS,
}

_CANCELS: Final = Rule((CANCEL,), OWN_JOB)
_REPORTS: Final = Rule((SERVE,), OWN_WORKER)

# Commands of the dialects, by dialect. Requests for the broker's own services need what `TASKS` says.
COMMANDS: Final[dict[str, dict[str, Rule]]] = {
    "MDP": {"REQUEST": _SUBMITS, "READY": _POLLS, "PARTIAL, FINAL": _REPORTS},
    "DCP": {
        "REQUEST": _SUBMITS,
        "REGISTER": _POLLS,
        "REPLY": _REPORTS,
        "REQUEST of a worker that forwards a job": _SUBMITS,
        "the same to the broker's own services": Rule((DELEGATE,), SUBMIT),
    },
    "NFP": {
        "POST": _SUBMITS,
        "GET": _JOBS,
        "DELETE": _CANCELS,
        "PUT": _CANCELS,
        "MMI to mmi.service.worker": Rule((OPERATE,), WORKERS),
        "GET of a job that only workers know": Rule((READ,), WORKERS),
        "READY": _POLLS,
        "RESPONSE, EVENT, STREAM": _REPORTS,
    },
    "WMP": {"READY": _POLLS, "GIVE, STATUS, DONE": _REPORTS},
    "memo01": {"JOB": _SUBMITS, "READY": _POLLS, "RESULT, HEARTBEAT": _REPORTS},
    "events": {"subscription": _rows(OBSERVE)},
}
