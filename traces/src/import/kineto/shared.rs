//! Shares the reading of a long trace among the cores.
//!
//! Kineto lays out events so that their ends can be found without reading them. The thread that walks through the trace cuts
//! it there, and others read the pieces, each with names of its own; in the end the pieces are put in order. Where a piece
//! cannot be read to its end nobody shares: one thread reads all of it, around the damage.

use std::{
    collections::BTreeMap,
    fs::File,
    mem,
    ops::ControlFlow,
    os::unix::fs::FileExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Scope},
};

use serde_json::value::RawValue;

use super::{
    super::profile::{Part, Profile, ReaderIds},
    collect::{Besides, Collected},
    document::{EventStretch, Supply, Visit, Walked, walk, walk_stretch},
    event::Event,
};

/// How many threads read one trace at most.
const MOST_READERS: usize = 8;

/// A piece of a trace and its place among all pieces.
type Piece = (usize, EventStretch);

/// What the text of pieces is read from, and where it goes then.
#[derive(Clone)]
pub(super) struct PieceTexts {
    pub(super) file: Arc<File>,
    /// Takes the room of texts that were read, if anybody needs it.
    pub(super) emptied: Option<SyncSender<Vec<u8>>>,
}

/// Reads a trace on several threads; nothing where one has to do it alone.
pub(super) fn collect<'scope>(
    scope: &'scope Scope<'scope, '_>,
    supply: impl Supply,
    texts: PieceTexts,
    own: Collected,
) -> Option<(Collected, Walked)> {
    let mut sharing = Sharing {
        scope,
        texts,
        own,
        all: Profile::default(),
        ids: vec![ReaderIds::default()],
        given_out: 0,
        appended: 0,
        waiting: BTreeMap::new(),
        readers: None,
        has_trouble: Arc::default(),
    };
    let walked = walk(supply, &mut sharing);
    Some((sharing.finish()?, walked))
}

/// What a reader made of a piece.
struct ReadPiece {
    reader: usize,
    place: usize,
    part: Part,
    besides: Besides,
}

/// The threads that read, as the one that cuts sees them.
struct Readers {
    pieces: SyncSender<Piece>,
    read: Receiver<ReadPiece>,
}

/// The thread that cuts a trace into pieces, reads what is between them, and puts all in order. It is reader 0.
struct Sharing<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    texts: PieceTexts,
    own: Collected,
    all: Profile,
    /// Of each reader.
    ids: Vec<ReaderIds>,
    /// How many places are given out, and how many of them are put in order.
    given_out: usize,
    appended: usize,
    /// What was read before its turn.
    waiting: BTreeMap<usize, ReadPiece>,
    readers: Option<Readers>,
    has_trouble: Arc<AtomicBool>,
}

impl Visit for Sharing<'_, '_> {
    fn field(&mut self, key: &str, value: &RawValue) {
        self.own.field(key, value);
    }

    fn begin(&mut self) -> ControlFlow<()> {
        self.own.begin()
    }

    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        self.own.event(event)
    }

    fn skip(&mut self) {
        self.own.skip();
    }

    fn wants_stretches(&self) -> bool {
        true
    }

    fn stretch(&mut self, events: EventStretch) -> ControlFlow<()> {
        self.end_own_part();
        if self.readers.is_none() {
            self.readers = Some(self.start_readers());
        }
        let place = self.next_place();
        let is_sent = self.readers.as_ref().is_some_and(|readers| readers.pieces.send((place, events)).is_ok());
        while let Some(piece) = self.readers.as_ref().and_then(|readers| readers.read.try_recv().ok()) {
            self.append(piece);
        }
        if is_sent && !self.has_trouble.load(Ordering::Relaxed) {
            return ControlFlow::Continue(());
        }
        self.has_trouble.store(true, Ordering::Relaxed);
        ControlFlow::Break(())
    }
}

impl Sharing<'_, '_> {
    fn start_readers(&mut self) -> Readers {
        let count = thread::available_parallelism().map_or(1, usize::from).min(MOST_READERS);
        let (pieces, from_cutter) = sync_channel(count);
        let (to_cutter, read) = channel();
        let from_cutter = Arc::new(Mutex::new(from_cutter));
        for reader in 1..=count {
            let task = Task {
                reader,
                collected: self.own.beside(),
                texts: self.texts.clone(),
                room: Vec::new(),
                pieces: from_cutter.clone(),
                read: to_cutter.clone(),
                has_trouble: self.has_trouble.clone(),
            };
            self.ids.push(ReaderIds::default());
            // Fewer than that will do; without any, sending fails.
            drop(thread::Builder::new().name("read".into()).spawn_scoped(self.scope, move || task.run()));
        }
        Readers { pieces, read }
    }

    fn next_place(&mut self) -> usize {
        self.given_out += 1;
        self.given_out - 1
    }

    /// What was read between pieces has its place among them.
    fn end_own_part(&mut self) {
        let (place, part) = (self.next_place(), self.own.profile.part());
        self.append(ReadPiece { reader: 0, place, part, besides: Besides::default() });
    }

    /// Appends a piece, or keeps it until those before it are there.
    fn append(&mut self, piece: ReadPiece) {
        self.waiting.insert(piece.place, piece);
        while let Some(piece) = self.waiting.remove(&self.appended) {
            self.all.append(piece.part, &mut self.ids[piece.reader]);
            self.own.besides.add(piece.besides);
            self.appended += 1;
        }
    }

    /// All of it.
    fn finish(mut self) -> Option<Collected> {
        self.end_own_part();
        let is_alone = self.readers.is_none();
        if let Some(Readers { pieces, read }) = self.readers.take() {
            drop(pieces);
            read.into_iter().for_each(|piece| self.append(piece));
        }
        let has_trouble = self.has_trouble.load(Ordering::Relaxed) || !is_alone && self.own.open.were_any();
        let is_whole = self.appended == self.given_out && !has_trouble;
        self.own.profile = self.all;
        is_whole.then_some(self.own)
    }
}

/// What one thread does.
struct Task {
    reader: usize,
    collected: Collected,
    texts: PieceTexts,
    /// For the text of what stands in the file.
    room: Vec<u8>,
    pieces: Arc<Mutex<Receiver<Piece>>>,
    read: Sender<ReadPiece>,
    has_trouble: Arc<AtomicBool>,
}

impl Task {
    /// Reads pieces until there are no more.
    fn run(mut self) {
        while let Some((place, stretch)) = self.next() {
            let is_read = self.read(stretch);
            // What began in one piece may end in another.
            if !is_read || self.collected.open.were_any() {
                self.has_trouble.store(true, Ordering::Relaxed);
            }
            let (part, besides) = (self.collected.profile.part(), mem::take(&mut self.collected.besides));
            drop(self.read.send(ReadPiece { reader: self.reader, place, part, besides }));
        }
    }

    /// Reads a piece; says whether all of it could be read.
    fn read(&mut self, stretch: EventStretch) -> bool {
        match stretch {
            EventStretch::Text(text) => {
                let is_read = walk_stretch(&text, &mut self.collected);
                if let Some(emptied) = &self.texts.emptied {
                    drop(emptied.try_send(text));
                }
                is_read
            }
            EventStretch::InFile(place) => {
                self.room.resize((place.end - place.start) as usize, 0);
                let is_there = self.texts.file.read_exact_at(&mut self.room, place.start).is_ok();
                is_there && walk_stretch(&self.room, &mut self.collected)
            }
        }
    }

    fn next(&self) -> Option<Piece> {
        self.pieces.lock().ok()?.recv().ok()
    }
}
