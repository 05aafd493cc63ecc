"""What Celery and async_nodes are set to: the place to edit, or to override by environment.

Celery reads the ``CELERY_*`` names through ``config_from_object("settings", namespace="CELERY")``
(without the namespace it would silently ignore them); async_nodes reads everything through
``async_nodes.settings.Settings.load``. A variable of the same name in the environment wins over
the value here, in the type of the value here; a name that nobody knows is refused.
"""

from async_nodes.settings import apply_environment

# -- Celery: broker, results, formats --------------------------------------------------------------

# ASYNC_NODES_REDIS_URL, where it is set, takes the place of both addresses.
CELERY_BROKER_URL = "redis://localhost:6379/1"
CELERY_RESULT_BACKEND = "redis://localhost:6379/2"

CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "Asia/Shanghai"
CELERY_ENABLE_UTC = True

# Seconds; also what a node gets that declares no time-out of its own.
CELERY_TASK_SOFT_TIME_LIMIT = 300.0
CELERY_TASK_TIME_LIMIT = 330.0

# -- Celery: what async_nodes relies on ------------------------------------------------------------

# The record is the truth; a result stored by Celery as well would be a second copy of it.
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TRACK_STARTED = False
CELERY_RESULT_EXPIRES = 86_400
# Without it every greenlet opens a backend connection of its own.
CELERY_RESULT_BACKEND_THREAD_SAFE = True

# Leases and fences recover lost tasks. A message that outlives its worker is cleared, not re-run.
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False
# With little credit a gevent worker sleeps in its poll while slots are free.
CELERY_WORKER_PREFETCH_MULTIPLIER = 4

# Nobody needs to listen: metrics and events are async_nodes' own.
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_SEND_SENT_EVENT = False

CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # for ever: a worker outlives its broker's restart
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # Ten years, that is never: a second delivery by the clock would run a long task twice.
    "visibility_timeout": 315_360_000,
    # A hung server is noticed, a blocking pop (1 s) is not disturbed.
    "socket_connect_timeout": 1,
    "socket_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
    "queue_order_strategy": "priority",
    # max_connections is absent on purpose: the worker sets it from its concurrency.
}

# -- async_nodes -----------------------------------------------------------------------------------

ASYNC_NODES_REDIS_URL = (
    None  # None: CELERY_BROKER_URL if that was changed, else the embedded server
)
ASYNC_NODES_REDIS_PASSWORD_FILE = None  # a file that holds the password, not in the address then
ASYNC_NODES_REDIS_SENTINEL_PASSWORD_FILE = None  # the same for the Sentinels, if they want one
ASYNC_NODES_REDIS_MAX_CONNECTIONS = None  # None: one connection that all greenlets share
ASYNC_NODES_REDIS_WAIT_REPLICAS = None  # how many replicas must have a task before its 202
ASYNC_NODES_REDIS_WAIT_SECONDS = 0.3  # how long they are waited for; then 503 outcome_unknown
ASYNC_NODES_HOST = "127.0.0.1"
ASYNC_NODES_PORT = 8000
ASYNC_NODES_PROCESSES = None  # None: one web process; else so many on one port, and one above
ASYNC_NODES_TLS_CERT = None  # None: plain HTTP; else a PEM file with the certificate chain
ASYNC_NODES_TLS_KEY = None  # its key; None: in the certificate's file
ASYNC_NODES_DATA_DIR = None  # None: .data in a checkout, else the user's data directory
ASYNC_NODES_IMPORTS = ()  # modules that define nodes
ASYNC_NODES_LEASE_SECONDS = 15.0  # a dead worker's tasks run again after this and 2 s
ASYNC_NODES_WRITE_SCHEMA = None  # during a rolling upgrade: the schema of the release before
ASYNC_NODES_TASK_LOG_LEVEL = "info"  # what ctx.log says so severely is kept with the task
ASYNC_NODES_TRANSPORT = "fast"  # or "stock": Celery takes the messages through kombu
ASYNC_NODES_SHUTDOWN_SECONDS = 20.0  # how long a stopping worker waits for its running tasks
ASYNC_NODES_FILE_MAX_BYTES = 67_108_864  # 64 MiB: of one file
ASYNC_NODES_FILES_MAX_BYTES = 1_073_741_824  # 1 GiB: of all files of a tenant
ASYNC_NODES_EGRESS_ALLOW = ()  # host:port entries that nodes may call though they are not public
ASYNC_NODES_ENDPOINT_BREAKERS = True  # calls of a failing host are no longer made for a while
ASYNC_NODES_ENDPOINT_BREAKER_WINDOW = 10.0  # seconds over which its failures are counted
ASYNC_NODES_ENDPOINT_BREAKER_OPEN_SECONDS = 30.0  # how long its calls are refused
ASYNC_NODES_KEY_PREFIX = "an"
ASYNC_NODES_METRICS_PORT = None  # None: /metrics of the web process only
ASYNC_NODES_LOG_FORMAT = "console"  # or "json": one object a line
ASYNC_NODES_LOG_TASKS = False  # True: a line for each change of a task's state
ASYNC_NODES_PYROSCOPE_URL = None  # None: no profiles; else the Pyroscope server they go to
ASYNC_NODES_TRACE_SAMPLE = None  # None: no spans; else the share of requests that begin a trace
ASYNC_NODES_METRICS_HOST = "127.0.0.1"  # where that port listens
ASYNC_NODES_METRICS_BESIDE = ()  # name=host:port of processes that the web process shows too
ASYNC_NODES_API_KEY = None  # a key that may do everything; without any key: loopback only
ASYNC_NODES_API_KEY_FILE = None  # a file that holds the key, instead of the key itself
ASYNC_NODES_MAX_STREAMS = 5_000  # event streams of one key, open in one web process
ASYNC_NODES_API_KEYS = False  # True: the keys of `async-nodes keys`, with tenants and scopes

apply_environment(globals())
