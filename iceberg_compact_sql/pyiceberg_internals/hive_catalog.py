"""pyiceberg's Hive catalog with Iceberg's comparison of the metadata location, time limits, and several metastores.

A writer with `engine.hive.lock-enabled=false` takes no lock. It relies on the metastore, which compares the metadata
location before it alters a table (Hive 2.3.10 and 4.0). pyiceberg only takes the lock, so that either writer could undo
the other's commit.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlparse

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    EnvironmentContext,
    LockResponse,
    LockState,
    MetaException,
)
from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from thrift.protocol import TBinaryProtocol
from thrift.transport import TSocket, TTransport

from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.storage.request_timeouts import timeouts_of

_log = masked_logger(__name__)
LOCK_ENABLED = "engine.hive.lock-enabled"
_EXPECTED_KEY, _EXPECTED_VALUE = "expected_parameter_key", "expected_parameter_value"
# The text of Hive's error for a location that has changed; Iceberg's Java recognises it in the same way.
_CHANGED = "The table has been modified"


class CheckedHiveCatalog(HiveCatalog):
    """A Hive catalog whose commits fail if the metadata location has changed, with locks and without."""

    _client: _LimitedClient

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _LimitedClient:
        return _LimitedClient(properties)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        with self._client.taking_locks(takes_locks(table.metadata.properties, self.properties)):
            return super().commit_table(table, requirements, updates)


def takes_locks(table_properties: Mapping[str, str], catalog_properties: Mapping[str, str]) -> bool:
    """Whether commits take the metastore's lock: the table's property, else the catalog's, else yes.

    >>> takes_locks({"engine.hive.lock-enabled": "false"}, {})
    False
    """
    text = table_properties.get(LOCK_ENABLED, catalog_properties.get(LOCK_ENABLED, "true"))
    return str(text).strip().lower() != "false"


class _CheckedClient(Client):  # type: ignore[misc]
    """A metastore's client that compares the metadata location when it alters a table."""

    def __init__(self, connections: _LimitedClient, transport: Any, socket: TSocket.TSocket, *, locks: bool) -> None:
        super().__init__(TBinaryProtocol.TBinaryProtocol(transport))
        self._connections, self._socket, self._locks = connections, socket, locks
        self._limits = connections.limits

    def lock(self, rqst: Any) -> Any:
        return super().lock(rqst) if self._locks else LockResponse(lockid=0, state=LockState.ACQUIRED)

    def unlock(self, rqst: Any) -> None:
        """Release a lock, also when the connection broke: others would wait for minutes until it times out.

        Never raises: the outcome of the commit is known, or unknown, without it.
        """
        if not self._locks:
            return
        try:
            try:
                super().unlock(rqst)
            except TTransport.TTransportException:
                with self._connections as other:
                    Client.unlock(other, rqst)
        except Exception as error:
            _log.warning("a lock of the metastore was not released, and will time out: %s", type(error).__name__)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: Any, environment_context: EnvironmentContext
    ) -> None:
        expected = new_tbl.parameters["previous_metadata_location"]
        environment_context.properties |= {_EXPECTED_KEY: "metadata_location", _EXPECTED_VALUE: expected}
        # After a timeout the outcome of a commit is unknown: wait longer for it than for other answers.
        self._socket.setTimeout(self._limits.commit_seconds * 1000)
        try:
            super().alter_table_with_environment_context(dbname, tbl_name, new_tbl, environment_context)
        except MetaException as error:
            if _CHANGED in str(error.message):
                raise CommitFailedException(f"another commit changed {dbname}.{tbl_name}") from error
            raise
        finally:
            self._socket.setTimeout(self._limits.patient_seconds * 1000)


class _LimitedClient(_HiveClient):
    """Connections to the first metastore that answers, each used by one thread, with time limits."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._uris = [uri.strip() for uri in properties["uri"].split(",") if uri.strip()]
        self.limits = timeouts_of(properties)
        self._kerberos = str(properties.get("hive.kerberos-authentication", "false")).lower() == "true"
        self._service = properties.get("hive.kerberos-service-name", "hive")
        ugi = properties.get("ugi")
        self._ugi = ugi.split(":") if ugi else None
        self._local = threading.local()

    def taking_locks(self, locks: bool) -> _Locking:
        return _Locking(self._local, locks)

    def __enter__(self) -> Client:
        failure: Exception | None = None
        for uri in self._uris:
            parts = urlparse(uri)
            socket = TSocket.TSocket(parts.hostname, parts.port or 9083)
            socket.setTimeout(self.limits.connect_seconds * 1000)
            transport = TTransport.TBufferedTransport(socket)
            if self._kerberos:
                transport = TTransport.TSaslClientTransport(socket, host=parts.hostname, service=self._service)
            try:
                transport.open()
            except TTransport.TTransportException as error:
                failure = error
                continue
            socket.setTimeout(self.limits.patient_seconds * 1000)
            locks = getattr(self._local, "locks", True)
            client = _CheckedClient(self, transport, socket, locks=locks)
            self._open_transports().append(transport)
            if self._ugi:
                client.set_ugi(*self._ugi)
            return client
        assert failure is not None
        raise failure

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self._open_transports().pop().close()

    def _open_transports(self) -> list[Any]:
        if not hasattr(self._local, "transports"):
            self._local.transports = []
        transports: list[Any] = self._local.transports
        return transports


class _Locking:
    """Says to the clients of this thread, while the block runs, whether they take locks."""

    def __init__(self, local: threading.local, locks: bool) -> None:
        self._local, self._locks = local, locks

    def __enter__(self) -> None:
        self._local.locks = self._locks

    def __exit__(self, *_: object) -> None:
        self._local.locks = True
