//! An SQLite database, opened so that nothing is written and nothing in it is run.
//!
//! Only tables are read, by our own statements: no views, triggers, virtual tables or generated columns. The file is taken
//! as one that does not change, so that no journal is looked for and none is made. Damaged pages may lead back to each
//! other: how much work all statements together may do is bounded by the length of the file.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, limits::Limit};

use super::Row;
use crate::error::{ImportError, TraceError};

/// The longest value there may be, in bytes.
const LONGEST_VALUE: i32 = 256 << 20;
/// How many instructions of SQLite's machine run between two looks at how many are left.
const INSTRUCTIONS: i32 = 10_000;
/// How many instructions any file may take, and how many more for each of its bytes. A row takes about one for each byte.
const LEAST_WORK: u64 = 20_000_000;
const WORK_PER_BYTE: u64 = 16;
/// How many tables and columns are looked at. Exports have a hundred tables.
const MOST_TABLES: usize = 4096;

/// A column to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableColumn<'a> {
    /// Its value.
    Value(&'static str),
    /// What it refers to by a number; or its value, if that is a text itself.
    In(&'static str, &'a Lookup),
}

/// Where values are that other tables refer to.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) table: Cow<'static, str>,
    pub(crate) id: &'static str,
    pub(crate) value: &'static str,
}

/// An open database.
pub(crate) struct Database {
    pub(crate) path: PathBuf,
    connection: Connection,
    /// The columns of each table.
    tables: BTreeMap<String, BTreeSet<String>>,
    /// What of it cannot be read, and why.
    damage: Vec<String>,
}

impl Database {
    /// Opens a file that begins as SQLite databases do.
    pub(crate) fn open(path: &Path) -> Result<Database, TraceError> {
        let whole = fs::canonicalize(path).map_err(TraceError::io("open", path))?;
        let length = whole.metadata().map_err(TraceError::io("look at", path))?.len();
        let opened = connect(&whole, length).and_then(|connection| {
            let tables = tables_of(&connection)?;
            Ok(Database { path: path.to_owned(), connection, tables, damage: Vec::new() })
        });
        opened.map_err(|error| {
            let what = format!("an SQLite database that cannot be read ({error}); export or copy it again");
            ImportError::NotATrace { path: path.to_owned(), what }.into()
        })
    }

    /// Whether there is a table of this name.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// Whether a table has a column.
    pub(crate) fn has_column(&self, table: &str, column: &str) -> bool {
        self.tables.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// The names of its tables.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }

    /// What cannot be read, if anything.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.first().map(String::as_str)
    }

    /// Goes over the rows of a table. Of one that is damaged these are the rows before the damage, which is noted.
    pub(crate) fn scan(&mut self, table: &str, columns: &[TableColumn<'_>], mut take: impl FnMut(&Row<'_>)) {
        let Some(known) = self.tables.get(table) else { return };
        let sql = self.select(table, known, columns);
        if let Err(error) = self.run(&sql, &mut take) {
            self.damage.push(format!("table {table}: {error}"));
        }
    }

    /// How many rows a table has. It is none where that cannot be counted.
    pub(crate) fn count(&mut self, table: &str) -> u64 {
        let mut count = 0;
        if self.has(table) {
            let counted = self.run(&format!("SELECT COUNT(*) FROM {}", quoted(table)), &mut |row| {
                count = row.number(0).unwrap_or(0);
            });
            self.damage.extend(counted.err().map(|error| format!("table {table}: {error}")));
        }
        count
    }

    fn run(&self, sql: &str, take: &mut impl FnMut(&Row<'_>)) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(&Row(row));
        }
        Ok(())
    }

    fn select(&self, table: &str, known: &BTreeSet<String>, columns: &[TableColumn<'_>]) -> String {
        let mut joins = String::new();
        let value = |(index, column): (usize, &TableColumn<'_>)| {
            let (TableColumn::Value(name) | TableColumn::In(name, _)) = column;
            if !known.contains(*name) {
                return "NULL".to_owned();
            }
            let value = format!("t.{}", quoted(name));
            match column {
                TableColumn::In(_, lookup)
                    if self.has_column(&lookup.table, lookup.id) && self.has_column(&lookup.table, lookup.value) =>
                {
                    let (table, id, found) = (quoted(&lookup.table), quoted(lookup.id), quoted(lookup.value));
                    joins += &format!(" LEFT JOIN {table} AS s{index} ON s{index}.{id} = {value}");
                    format!("COALESCE(s{index}.{found}, IIF(TYPEOF({value}) = 'text', {value}, NULL))")
                }
                _ => value,
            }
        };
        let values: Vec<String> = columns.iter().enumerate().map(value).collect();
        format!("SELECT {} FROM {} AS t{joins}", values.join(", "), quoted(table))
    }
}

fn connect(path: &Path, length: u64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(address(path), flags)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    for (setting, is_on) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DML, false),
    ] {
        connection.set_db_config(setting, is_on)?;
    }
    let mut left = LEAST_WORK.saturating_add(length.saturating_mul(WORK_PER_BYTE));
    let is_enough = move || {
        left = left.saturating_sub(INSTRUCTIONS as u64);
        left == 0
    };
    connection.progress_handler(INSTRUCTIONS, Some(is_enough))?;
    Ok(connection)
}

/// The address of a file that is read and does not change.
fn address(path: &Path) -> OsString {
    let mut address = b"file://".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'?' | b'#' | b'%' => address.extend(format!("%{byte:02x}").bytes()),
            _ => address.push(*byte),
        }
    }
    address.extend(b"?mode=ro&immutable=1");
    OsString::from_vec(address)
}

/// The plain tables, with the columns that are stored.
fn tables_of(connection: &Connection) -> rusqlite::Result<BTreeMap<String, BTreeSet<String>>> {
    let mut statement =
        connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?.take(MOST_TABLES);
    let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    let mut tables = BTreeMap::new();
    for name in names {
        // A hidden column is computed, or is none of a plain table.
        let mut columns = connection.prepare("SELECT name FROM pragma_table_xinfo(?1) WHERE hidden = 0")?;
        let columns = columns.query_map([&name], |row| row.get::<_, String>(0))?.take(MOST_TABLES);
        tables.insert(name, columns.collect::<rusqlite::Result<_>>()?);
    }
    Ok(tables)
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(statements: &str) -> (tempfile::TempDir, Database) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("with ? and % and #.sqlite");
        Connection::open(&path).unwrap().execute_batch(statements).unwrap();
        let opened = Database::open(&path).unwrap();
        (directory, opened)
    }

    #[test]
    fn texts_are_looked_up_or_stand_in_the_row() {
        let (directory, mut database) = database(
            "CREATE TABLE Texts (id INTEGER PRIMARY KEY, value TEXT); INSERT INTO Texts VALUES (7, 'seven');
             CREATE TABLE Rows (\"end\" INTEGER, name); INSERT INTO Rows VALUES (1, 7), (2, 'inline'), (3, 8), (NULL, NULL);",
        );
        let texts = Lookup { table: "Texts".into(), id: "id", value: "value" };
        let mut rows = Vec::new();
        let columns = [TableColumn::Value("end"), TableColumn::In("name", &texts), TableColumn::Value("missing")];
        database.scan("Rows", &columns, |row| {
            assert_eq!(row.integer(2), None);
            rows.push((row.integer(0), row.text(1).map(|text| text.into_owned())));
        });
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(rows, [(Some(1), text("seven")), (Some(2), text("inline")), (Some(3), None), (None, None)]);
        assert_eq!((database.count("Rows"), database.count("no such table")), (4, 0));
        assert_eq!(database.damage(), None);
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "nothing is written beside it");
    }

    #[test]
    fn only_what_is_stored_is_read() {
        let (_directory, mut database) = database(
            "CREATE TABLE Rows (a INTEGER, b AS (a * 2)); INSERT INTO Rows VALUES (1);
             CREATE VIEW Endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n;",
        );
        assert!(database.has("Rows") && !database.has("Endless"));
        assert!(database.has_column("Rows", "a") && !database.has_column("Rows", "b"));
        let endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT COUNT(*) FROM n";
        assert!(database.run(endless, &mut |_| {}).is_err(), "work has an end");
        database.scan("Rows", &[TableColumn::Value("a")], |row| assert_eq!(row.integer(0), Some(1)));
    }
}
