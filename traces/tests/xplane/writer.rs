//! Writes messages of XLA's profiles, as their schema numbers the fields.

/// A message that is being written.
#[derive(Clone, Default)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    pub(crate) fn number(mut self, field: u32, value: u64) -> Message {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    pub(crate) fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn text(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    pub(crate) fn message(self, field: u32, value: Message) -> Message {
        self.bytes(field, &value.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The value of a stat.
#[derive(Clone, Copy)]
pub(crate) enum Stat<'a> {
    Number(u64),
    Text(&'a str),
    /// A text that stands among the names of stats.
    Reference(&'a str),
    Bytes(&'a [u8]),
}

/// A plane that is being written.
#[derive(Default)]
pub(crate) struct PlaneWriter {
    name: String,
    lines: Vec<Message>,
    kinds: Vec<(String, Message)>,
    stats: Vec<String>,
    own: Vec<Message>,
}

impl PlaneWriter {
    pub(crate) fn new(name: &str) -> PlaneWriter {
        PlaneWriter { name: name.into(), ..PlaneWriter::default() }
    }

    fn stat_id(&mut self, name: &str) -> u64 {
        let known = self.stats.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.stats.push(name.into());
            self.stats.len() - 1
        });
        index as u64 + 1
    }

    pub(crate) fn stat(&mut self, (name, value): (&str, Stat<'_>)) -> Message {
        let stat = Message::default().number(1, self.stat_id(name));
        match value {
            Stat::Number(number) => stat.number(3, number),
            Stat::Text(text) => stat.text(5, text),
            Stat::Bytes(bytes) => stat.bytes(6, bytes),
            Stat::Reference(text) => {
                let id = self.stat_id(text);
                stat.number(7, id)
            }
        }
    }

    /// Says something of the plane itself.
    pub(crate) fn say(&mut self, stat: (&str, Stat<'_>)) {
        let stat = self.stat(stat);
        self.own.push(stat);
    }

    /// A kind of events; what else is said of it is in `stats`.
    pub(crate) fn kind(&mut self, name: &str, display_name: &str, stats: &[(&str, Stat<'_>)]) -> u64 {
        if let Some(known) = self.kinds.iter().position(|(known, _)| known == name) {
            return known as u64 + 1;
        }
        let mut kind = Message::default().text(2, name).text(4, display_name);
        for stat in stats {
            kind = kind.message(5, self.stat(*stat));
        }
        self.kinds.push((name.into(), kind));
        self.kinds.len() as u64
    }

    /// An event: its name, when it is in picoseconds from the beginning of its line on, and what is said of it.
    pub(crate) fn event(
        &mut self,
        name: &str,
        (offset_ps, duration_ps): (u64, u64),
        stats: &[(&str, Stat<'_>)],
    ) -> Message {
        let kind = self.kind(name, "", &[]);
        let mut event = Message::default().number(1, kind).number(2, offset_ps).number(3, duration_ps);
        for stat in stats {
            event = event.message(4, self.stat(*stat));
        }
        event
    }

    pub(crate) fn line(&mut self, id: u64, name: &str, timestamp_ns: u64, events: Vec<Message>) {
        let line = Message::default().number(1, id).text(2, name).number(3, timestamp_ns);
        self.lines.push(events.into_iter().fold(line, |line, event| line.message(4, event)));
    }

    pub(crate) fn plane(self) -> Message {
        let entry = |id: usize, value: Message| Message::default().number(1, id as u64 + 1).message(2, value);
        let mut plane = Message::default().text(2, &self.name);
        for line in self.lines {
            plane = plane.message(3, line);
        }
        for (id, (_, kind)) in self.kinds.into_iter().enumerate() {
            plane = plane.message(4, entry(id, kind));
        }
        for (id, name) in self.stats.iter().enumerate() {
            plane = plane.message(5, entry(id, Message::default().text(2, name)));
        }
        self.own.into_iter().fold(plane, |plane, stat| plane.message(6, stat))
    }
}

/// A profile of these planes.
pub(crate) fn space(planes: Vec<PlaneWriter>) -> Vec<u8> {
    let space = planes.into_iter().fold(Message::default(), |space, plane| space.message(1, plane.plane()));
    space.text(4, "node7").0
}

/// The plane that says when a profile began.
pub(crate) fn environment(began_ns: u64) -> PlaneWriter {
    let mut plane = PlaneWriter::new("Task Environment");
    plane.say(("profile_start_time", Stat::Number(began_ns)));
    plane
}
