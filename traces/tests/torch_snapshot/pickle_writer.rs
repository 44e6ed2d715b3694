use std::{fs, path::PathBuf};

use stepscope_traces::{Loss, RankData, RankInfo, Run, RunInfo, State, TraceError, Window};
use tempfile::TempDir;

/// A value of Python.
#[derive(Clone, Debug)]
pub(crate) enum Python {
    Integer(i64),
    Text(String),
    List(Vec<Python>),
    Dict(Vec<(&'static str, Python)>),
}

impl From<&str> for Python {
    fn from(text: &str) -> Python {
        Python::Text(text.into())
    }
}

impl Python {
    /// Writes a value as Python does, lists of one item without a mark.
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            Python::Integer(integer) => {
                bytes.extend([0x8a, 8]);
                bytes.extend(integer.to_le_bytes());
            }
            Python::Text(text) => {
                bytes.push(b'X');
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
                bytes.push(0x94);
            }
            Python::List(items) => {
                bytes.extend(*b"]\x94");
                match items.as_slice() {
                    [] => {}
                    [item] => {
                        item.write(bytes);
                        bytes.push(b'a');
                    }
                    items => {
                        bytes.push(b'(');
                        items.iter().for_each(|item| item.write(bytes));
                        bytes.push(b'e');
                    }
                }
            }
            Python::Dict(pairs) => {
                bytes.extend(*b"}\x94(");
                for (key, value) in pairs {
                    Python::from(*key).write(bytes);
                    value.write(bytes);
                }
                bytes.push(b'u');
            }
        }
    }

    pub(crate) fn pickle(&self) -> Vec<u8> {
        let mut bytes = vec![0x80, 4];
        self.write(&mut bytes);
        bytes.push(b'.');
        bytes
    }
}

/// Frames, the innermost first: function and file.
pub(crate) type Frames = &'static [(&'static str, &'static str)];

fn frames(frames: Frames) -> Python {
    let frame = |(name, file): &(&str, &str)| {
        Python::Dict(vec![("name", (*name).into()), ("filename", (*file).into()), ("line", Python::Integer(1))])
    };
    Python::List(frames.iter().map(frame).collect())
}

/// A snapshot in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Of each device.
    pub(crate) histories: Vec<Vec<Python>>,
    segments: Vec<Python>,
    annotations: Vec<Python>,
    /// The time of the next event; none if events have no times.
    pub(crate) time_us: Option<i64>,
}

impl Snapshot {
    pub(crate) fn new() -> Snapshot {
        Snapshot { histories: vec![Vec::new()], time_us: Some(1_000_000), ..Snapshot::default() }
    }

    pub(crate) fn without_times() -> Snapshot {
        Snapshot { time_us: None, ..Snapshot::new() }
    }

    /// Events from here on are of another device.
    pub(crate) fn next_device(&mut self) {
        self.histories.push(Vec::new());
    }

    pub(crate) fn event(&mut self, action: &str, address: i64, bytes: i64, stack: Frames) {
        let mut event = vec![
            ("action", action.into()),
            ("addr", Python::Integer(address)),
            ("size", Python::Integer(bytes)),
            ("stream", Python::Integer(0)),
            ("frames", frames(stack)),
        ];
        if let Some(time) = &mut self.time_us {
            event.push(("time_us", Python::Integer(*time)));
            *time += 1;
        }
        self.histories.last_mut().unwrap().push(Python::Dict(event));
    }

    pub(crate) fn alloc(&mut self, address: i64, bytes: i64, stack: Frames) {
        self.event("alloc", address, bytes, stack);
    }

    pub(crate) fn free(&mut self, address: i64, bytes: i64, stack: Frames) {
        self.event("free_requested", address, bytes, stack);
        self.event("free_completed", address, bytes, stack);
    }

    /// A segment of the first device with blocks: address, bytes, state, stack.
    pub(crate) fn segment(&mut self, address: i64, bytes: i64, blocks: &[(i64, i64, &str, Frames)]) {
        let block = |(address, bytes, state, stack): &(i64, i64, &str, Frames)| {
            Python::Dict(vec![
                ("address", Python::Integer(*address)),
                ("size", Python::Integer(bytes + 12)),
                ("requested_size", Python::Integer(*bytes)),
                ("state", (*state).into()),
                ("frames", frames(stack)),
            ])
        };
        self.segments.push(Python::Dict(vec![
            ("device", Python::Integer(0)),
            ("address", Python::Integer(address)),
            ("total_size", Python::Integer(bytes)),
            ("stream", Python::Integer(0)),
            ("segment_type", "large".into()),
            ("frames", frames(&[])),
            ("blocks", Python::List(blocks.iter().map(block).collect())),
        ]));
    }

    /// Names the time from now until `end` is called.
    pub(crate) fn annotate(&mut self, stage: &str, name: &str) {
        self.annotations.push(Python::Dict(vec![
            ("stage", stage.into()),
            ("name", name.into()),
            ("device", Python::Integer(0)),
            ("time_us", Python::Integer(self.time_us.unwrap_or(0))),
        ]));
    }

    pub(crate) fn pickle(&self) -> Vec<u8> {
        let histories = self.histories.iter().map(|history| Python::List(history.clone())).collect();
        Python::Dict(vec![
            ("segments", Python::List(self.segments.clone())),
            ("device_traces", Python::List(histories)),
            ("allocator_settings", Python::Dict(vec![("max_split_size", Python::Integer(-1))])),
            ("external_annotations", Python::List(self.annotations.clone())),
        ])
        .pickle()
    }

    pub(crate) fn import(&self) -> Imported {
        import(&self.pickle()).unwrap()
    }
}

/// A run that was read.
pub(crate) struct Imported {
    pub(crate) info: RunInfo,
    pub(crate) ranks: Vec<ImportedRank>,
}

pub(crate) struct ImportedRank {
    pub(crate) info: RankInfo,
    pub(crate) state: State,
    pub(crate) data: RankData,
    pub(crate) loss: Loss,
}

impl Imported {
    pub(crate) fn of(run: &Run) -> Imported {
        let ranks = run.ranks.iter().map(|rank| {
            let (data, loss) = rank.read(Window::ALL).unwrap();
            ImportedRank { info: rank.info.clone(), state: rank.state, data, loss }
        });
        Imported { info: run.info.clone(), ranks: ranks.collect() }
    }
}

/// Reads some bytes as a file.
pub(crate) fn import(bytes: &[u8]) -> Result<Imported, TraceError> {
    let (_directory, path) = file(bytes);
    Run::of_source(&path).map(|run| Imported::of(&run))
}

/// A file with some bytes.
pub(crate) fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot.pickle");
    fs::write(&path, bytes).unwrap();
    (directory, path)
}
