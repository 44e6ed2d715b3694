//! Makes exports of Nsight Systems, in the words of its schema.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, params};
use stepscope_traces::{Loss, RankData, Run, Span, SpanKind, Window};

/// When the session began, in nanoseconds since 1970.
pub(crate) const BEGAN: i64 = 1_780_000_000_000_000_000;

/// The tables of 2026, without columns that nobody reads.
const SCHEMA: &str = "
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
    CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL,
        nameEnum INTEGER NOT NULL, value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER,
        uuid TEXT, cuDevice INTEGER, busLocation TEXT);
    CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT);
    CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        value INTEGER NOT NULL, bytes INTEGER NOT NULL, memKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
        text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, jsonTextId INTEGER,
        jsonText TEXT, binaryData TEXT);
";

/// The number of a process, or of one of its threads, on the machine with the number 1.
pub(crate) fn global(pid: i64, thread: i64) -> i64 {
    1 << 48 | pid << 24 | thread
}

/// An export that is being made.
pub(crate) struct Export {
    directory: tempfile::TempDir,
    pub(crate) database: Connection,
}

impl Export {
    /// One with the tables of 2026, and nothing in them but a clock.
    pub(crate) fn new() -> Export {
        let export = Export::empty();
        export.database.execute_batch(SCHEMA).unwrap();
        export.run("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?1, 'some time')", [BEGAN]);
        export
    }

    /// A database without tables.
    pub(crate) fn empty() -> Export {
        let directory = tempfile::tempdir().unwrap();
        let database = Connection::open(directory.path().join("report.sqlite")).unwrap();
        Export { directory, database }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("report.sqlite")
    }

    /// The directory that it is alone in.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn run(&self, sql: &str, values: impl rusqlite::Params) {
        self.database.execute(sql, values).unwrap();
    }

    /// The number of a text.
    pub(crate) fn text(&self, text: &str) -> i64 {
        let known = self.database.query_row("SELECT id FROM StringIds WHERE value = ?1", [text], |row| row.get(0));
        known.unwrap_or_else(|_| {
            self.run("INSERT INTO StringIds (value) VALUES (?1)", [text]);
            self.database.last_insert_rowid()
        })
    }

    /// A kernel on the first stream of a device, and the call on the main thread of the process that launched it, which
    /// took 2 ns and ended when the kernel began.
    pub(crate) fn kernel(&self, pid: i64, device: i64, name: &str, start: i64, end: i64) -> i64 {
        self.kernel_of_thread(pid, pid, device, name, start, end)
    }

    /// As [`Export::kernel`], of another thread. Numbers of calls are the same in all processes.
    pub(crate) fn kernel_of_thread(&self, pid: i64, thread: i64, device: i64, name: &str, start: i64, end: i64) -> i64 {
        let correlation = self.call(pid, thread, "cudaLaunchKernel_v7000", start - 2, start);
        let name = self.text(name);
        self.run(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, 7, ?4, ?5, ?6, ?6, 1)",
            params![start, end, device, correlation, global(pid, 0), name],
        );
        correlation
    }

    /// A call; its number is the next of its process.
    pub(crate) fn call(&self, pid: i64, thread: i64, name: &str, start: i64, end: i64) -> i64 {
        let name = self.text(name);
        let count = "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE globalTid >> 24 = ?1";
        let count = self.database.query_row(count, [global(pid, 0) >> 24], |row| row.get::<_, i64>(0)).unwrap();
        let correlation = 100 + count;
        self.run(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, 0, ?3, ?4, ?5, 0)",
            params![start, end, global(pid, thread), correlation, name],
        );
        correlation
    }

    /// A range of a thread, with its text in the row.
    pub(crate) fn range(&self, pid: i64, thread: i64, text: &str, start: i64, end: i64) {
        self.run(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES (?1, ?2, 59, ?3, ?4, 0)",
            params![start, end, text, global(pid, thread)],
        );
    }

    /// Opens it.
    pub(crate) fn open(&self) -> Run {
        Run::of_source(&self.path()).unwrap()
    }

    /// The rows of one of its ranks.
    pub(crate) fn rank(&self, rank: usize) -> (RankData, Loss) {
        self.open().ranks[rank].read(Window::ALL).unwrap()
    }
}

/// The spans that the GPU did.
pub(crate) fn activities(data: &RankData) -> Vec<Span> {
    data.spans.rows().filter(|span| !span.kind.is_annotation() && span.kind != SpanKind::Launch).collect()
}

/// The name of a span.
pub(crate) fn name(data: &RankData, span: &Span) -> String {
    data.names.get(span.name).unwrap().to_owned()
}
