//! Bytes as they come, into a table, around whatever is damaged.

use memchr::memmem;

use super::{
    decode::{self, BatchHead},
    frame::{CONTINUATION, END_OF_STREAM, Frame},
};
use crate::{ids::Nanos, loss::Loss, tables::Table, window::Window};

/// What the batches of a file tell without being decompressed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Rows in batches that check out, wanted or not.
    pub(crate) rows: u64,
    /// Batches that check out.
    pub(crate) batches: u64,
    /// The time those batches cover.
    pub(crate) time: Option<(Nanos, Nanos)>,
    /// What was found damaged.
    pub(crate) loss: Loss,
}

impl Tally {
    fn count(&mut self, head: &BatchHead<'_>) {
        self.rows += head.rows as u64;
        self.batches += 1;
        self.time = match (self.time, head.time) {
            (Some((from, to)), Some((start, end))) => Some((from.min(start), to.max(end))),
            (known, new) => known.or(new),
        };
    }
}

/// Reads the bytes of one file, in pieces of any size.
pub(crate) struct Scanner {
    /// Bytes that were given and not yet understood.
    pending: Vec<u8>,
    /// The number of the row that should come next; unknown, where it is not told what was before.
    next_row: Option<u64>,
    tally: Tally,
}

impl Scanner {
    pub(crate) fn new() -> Scanner {
        Scanner { pending: Vec::new(), next_row: Some(0), tally: Tally::default() }
    }

    /// Where to put the bytes that come next in the file.
    pub(crate) fn pending_mut(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// What comes next is in another file, in which rows are numbered on if that one is the next.
    pub(crate) fn change_file(&mut self, is_next: bool) {
        self.tally = self.tally_at_end();
        self.pending.clear();
        self.next_row = self.next_row.filter(|_| is_next);
    }

    /// What was read so far.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// What the tally would be if no more bytes came: what is pending is then unreadable.
    pub(crate) fn tally_at_end(&self) -> Tally {
        let mut tally = self.tally;
        tally.loss.unreadable_bytes += self.pending.len() as u64;
        tally
    }

    /// Moves every whole batch that touches `window` into `table`, and counts the others.
    pub(crate) fn drain<T: Table>(&mut self, window: Window, table: &mut T) {
        self.drain_until(window, table, false);
    }

    /// As [`Scanner::drain`] when no more bytes will come: also finds batches behind a head that promised more than
    /// the file has.
    pub(crate) fn drain_to_end<T: Table>(&mut self, window: Window, table: &mut T) {
        self.drain_until(window, table, true);
    }

    fn drain_until<T: Table>(&mut self, window: Window, table: &mut T, at_end: bool) {
        let pending = std::mem::take(&mut self.pending);
        let mut position = 0;
        let mut last_understood = 0;
        while let Some(bytes) = pending.get(position..).filter(|bytes| !bytes.is_empty()) {
            match Frame::parse(bytes) {
                Frame::Message { message, body, length } => {
                    self.tally.loss.unreadable_bytes += (position - last_understood) as u64;
                    match BatchHead::of(&message) {
                        // A schema or the words of a dictionary: the schema version already tells them.
                        None if body.is_some() => {}
                        None => self.tally.loss.unreadable_bytes += length as u64,
                        Some(head) => {
                            let read = head.is_ok_and(|head| self.batch(&head, body, window, table));
                            if !read {
                                self.tally.loss.unreadable_bytes += length as u64;
                            }
                        }
                    }
                    position += length;
                    last_understood = position;
                }
                Frame::EndOfStream => {
                    self.tally.loss.unreadable_bytes += (position - last_understood) as u64;
                    position += END_OF_STREAM.len();
                    last_understood = position;
                }
                Frame::Unfinished if !at_end => break,
                Frame::Unfinished | Frame::Garbage => position = next_candidate(&pending, position + 1),
            }
        }
        // What is certainly garbage is counted now; what may become a message waits. At the end a tail waits for ever.
        let garbage = if at_end { last_understood } else { position.min(pending.len()) };
        self.tally.loss.unreadable_bytes += (garbage - last_understood) as u64;
        self.pending = pending;
        self.pending.drain(..garbage);
    }

    /// Reads one batch and says whether it could be read. Rows that should have come before it are counted as lost.
    fn batch<T: Table>(&mut self, head: &BatchHead<'_>, body: Option<&[u8]>, window: Window, table: &mut T) -> bool {
        // Rows that were there before are not read twice, and another table's rows not at all.
        let columns = T::default().columns().len();
        let next_row = self.next_row.unwrap_or(head.first_row);
        if head.first_row < next_row || !(columns - T::added_columns()..=columns).contains(&head.columns) {
            return false;
        }
        self.tally.loss.unreadable_events += head.first_row - next_row;
        self.next_row = Some(head.first_row.saturating_add(head.rows as u64));
        let mut endless = 0;
        let read = body.is_some_and(|body| match head.time {
            // A row without an end is lost, whatever is wanted: only whoever reads it can count it.
            Some(time) if !window.may_touch(time) && time.1 < Nanos(i64::MAX) => true,
            Some(time) if !window.surely_touches(time) => {
                let mut batch = T::default();
                let read = decode::append(head, body, &mut batch).is_ok();
                endless = batch.leave_out_endless(0);
                table.append_within(&batch, window);
                read
            }
            _ => {
                let before = table.len();
                let read = decode::append(head, body, table).is_ok();
                endless = table.leave_out_endless(before);
                read
            }
        });
        if read {
            self.tally.count(head);
            self.tally.rows -= endless;
            self.tally.loss.unreadable_events += endless;
        } else {
            self.tally.loss.unreadable_events += head.rows as u64;
        }
        read
    }
}

/// Where the next message may begin, from `position` on: at the mark every message begins with, or at the end, where
/// it may yet come.
fn next_candidate(bytes: &[u8], position: usize) -> usize {
    let rest = bytes.get(position..).unwrap_or_default();
    let mark = memmem::find(rest, &CONTINUATION);
    position + mark.unwrap_or(rest.len().saturating_sub(CONTINUATION.len() - 1).max(rest.len().min(1)))
}
