//! The stack machine.

use std::io::Read;

use super::{
    PROTOCOLS, PickleError,
    instruction::{self as code, runs},
    source::{Source, Stopped},
    value::{Fold, Object, ObjectId, Objects, Value},
};

/// How a pickle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Ending {
    /// With its last instruction.
    Whole,
    /// Before that: so many bytes it had announced are missing, and at least one.
    Cut {
        /// How many.
        missing_bytes: u64,
    },
}

/// What a pickle holds, and how it ended.
pub(in super::super) struct Pickle<R> {
    pub(in super::super) value: Value,
    pub(in super::super) objects: Objects<R>,
    pub(in super::super) ending: Ending,
}

/// The longest text of which all is kept: that of a symbol of C++ may be long.
const LONGEST_TEXT: usize = 64 << 10;

/// The longest name of something to run that is told.
const LONGEST_NAME: usize = 100;

/// A small file may have this many values.
const VALUES_AT_LEAST: u64 = 1 << 20;

/// A large one has at most one for so many bytes; real snapshots have one for 20 or more.
const BYTES_PER_VALUE: u64 = 8;

/// However large it is: values are numbered in 32 bits.
const VALUES_AT_MOST: u64 = 1 << 31;

/// Reads a pickle. One that is cut off is closed where it ends: lists and dicts have what was there of them, and a
/// dict that was not whole is not folded.
pub(in super::super) fn read<F: Fold>(reader: impl Read, fold: &mut F) -> Result<Pickle<F::Record>, PickleError> {
    let mut machine = Machine {
        source: Source::new(reader),
        fold,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        objects: Objects::new(),
        items: 0,
        texts: 0,
        last_texts: [const { Vec::new() }; 2],
        text: Vec::new(),
        frame_end: 0,
    };
    let (value, ending) = match machine.run() {
        Ok(value) => (value, Ending::Whole),
        Err(Stop::Error(error)) => return Err(error),
        Err(Stop::End) => {
            let missing_bytes = machine.frame_end.saturating_sub(machine.source.offset()).max(1);
            (machine.close(), Ending::Cut { missing_bytes })
        }
    };
    Ok(Pickle { value, objects: machine.objects, ending })
}

/// Why the machine stopped early.
enum Stop {
    /// The bytes ended.
    End,
    /// Something is wrong.
    Error(PickleError),
}

impl From<Stopped> for Stop {
    fn from(stopped: Stopped) -> Stop {
        match stopped {
            Stopped::End => Stop::End,
            Stopped::Io(error) => Stop::Error(error.into()),
        }
    }
}

struct Machine<'fold, F: Fold, R> {
    source: Source<R>,
    fold: &'fold mut F,
    stack: Vec<Value>,
    /// How long the stack was at each mark.
    marks: Vec<usize>,
    memo: Vec<Value>,
    objects: Objects<F::Record>,
    /// Values in containers.
    items: u64,
    /// Texts, however often the same.
    texts: u64,
    /// The two newest texts, for the name of what a pickle wants to run.
    last_texts: [Vec<u8>; 2],
    text: Vec<u8>,
    /// Where the newest frame says that it ends.
    frame_end: u64,
}

impl<F: Fold, R: Read> Machine<'_, F, R> {
    fn run(&mut self) -> Result<Value, Stop> {
        loop {
            let instruction = self.source.byte()?;
            match instruction {
                code::PROTO => {
                    let protocol = self.source.byte()?;
                    if !PROTOCOLS.contains(&protocol) {
                        return Err(self.malformed("a version of the format that is not known"));
                    }
                }
                code::FRAME => {
                    let length = u64::from_le_bytes(self.source.array()?);
                    self.frame_end = self.source.offset().saturating_add(length);
                }
                code::STOP => return self.pop(),
                code::MARK => {
                    self.marks.push(self.stack.len());
                    self.check_size()?;
                }
                code::POP => drop(self.pop()?),
                code::POP_MARK => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                }
                code::DUP => {
                    let top = self.top()?;
                    self.push(top)?;
                }
                code::MEMOIZE => self.remember(self.memo.len())?,
                code::BINPUT => {
                    let index = self.source.byte()?;
                    self.remember(index.into())?;
                }
                code::LONG_BINPUT => {
                    let index = u32::from_le_bytes(self.source.array()?);
                    self.remember(index as usize)?;
                }
                code::BINGET => {
                    let index = self.source.byte()?;
                    self.recall(index.into())?;
                }
                code::LONG_BINGET => {
                    let index = u32::from_le_bytes(self.source.array()?);
                    self.recall(index as usize)?;
                }
                code::NONE => self.push(Value::None)?,
                code::NEWTRUE => self.push(Value::Bool(true))?,
                code::NEWFALSE => self.push(Value::Bool(false))?,
                code::BININT => {
                    let integer = i32::from_le_bytes(self.source.array()?);
                    self.push(Value::Integer(integer.into()))?;
                }
                code::BININT1 => {
                    let integer = self.source.byte()?;
                    self.push(Value::Integer(integer.into()))?;
                }
                code::BININT2 => {
                    let integer = u16::from_le_bytes(self.source.array()?);
                    self.push(Value::Integer(integer.into()))?;
                }
                code::LONG1 => {
                    let length = self.source.byte()?;
                    self.long(length.into())?;
                }
                code::LONG4 => {
                    let length = u32::from_le_bytes(self.source.array()?);
                    self.long(length.into())?;
                }
                code::BINFLOAT => {
                    let float = f64::from_be_bytes(self.source.array()?);
                    self.push(Value::Float(float))?;
                }
                code::SHORT_BINUNICODE => {
                    let length = self.source.byte()?;
                    self.text(length.into())?;
                }
                code::BINUNICODE => {
                    let length = u32::from_le_bytes(self.source.array()?);
                    self.text(length.into())?;
                }
                code::BINUNICODE8 => {
                    let length = u64::from_le_bytes(self.source.array()?);
                    self.text(length)?;
                }
                code::SHORT_BINBYTES => {
                    let length = self.source.byte()?;
                    self.bytes(length.into())?;
                }
                code::BINBYTES => {
                    let length = u32::from_le_bytes(self.source.array()?);
                    self.bytes(length.into())?;
                }
                code::BINBYTES8 | code::BYTEARRAY8 => {
                    let length = u64::from_le_bytes(self.source.array()?);
                    self.bytes(length)?;
                }
                code::EMPTY_LIST => {
                    let list = self.objects.add(Object::List(Vec::new()));
                    self.push(Value::List(list))?;
                }
                code::EMPTY_DICT => {
                    let dict = self.objects.add(Object::Dict(Vec::new()));
                    self.push(Value::Dict(dict))?;
                }
                code::APPEND => {
                    self.need(2)?;
                    self.append(self.stack.len() - 1, true)?;
                }
                code::APPENDS => {
                    let mark = self.mark()?;
                    self.append(mark, true)?;
                }
                code::SETITEM => {
                    self.need(3)?;
                    self.set_items(self.stack.len() - 2, true)?;
                }
                code::SETITEMS => {
                    let mark = self.mark()?;
                    self.set_items(mark, true)?;
                }
                code::EMPTY_TUPLE => self.push(Value::Other(TUPLE))?,
                code::TUPLE => {
                    let mark = self.mark()?;
                    self.replace(mark, TUPLE)?;
                }
                code::TUPLE1 | code::TUPLE2 | code::TUPLE3 => {
                    let items = usize::from(instruction - code::TUPLE1) + 1;
                    self.need(items)?;
                    self.replace(self.stack.len() - items, TUPLE)?;
                }
                code::EMPTY_SET => self.push(Value::Other(SET))?,
                code::ADDITEMS => {
                    let mark = self.mark()?;
                    self.stack.truncate(mark);
                }
                code::FROZENSET => {
                    let mark = self.mark()?;
                    self.replace(mark, SET)?;
                }
                other => return Err(self.refusal(other)?),
            }
        }
    }

    /// Why an instruction is not followed.
    fn refusal(&mut self, instruction: u8) -> Result<Stop, Stop> {
        let offset = self.source.offset() - 1;
        let what = match instruction {
            code::GLOBAL | code::INST => {
                let (module, name) = (self.line()?, self.line()?);
                dotted(&module, &name)
            }
            code::STACK_GLOBAL => dotted(&self.last_texts[0], &self.last_texts[1]),
            other => match runs(other) {
                Some(what) => what.to_owned(),
                None => return Ok(Stop::Error(PickleError::Instruction { offset, code: other })),
            },
        };
        Ok(Stop::Error(PickleError::WantsToRun { what }))
    }

    /// The beginning of a line.
    fn line(&mut self) -> Result<Vec<u8>, Stop> {
        let mut line = Vec::new();
        loop {
            match self.source.byte()? {
                b'\n' => return Ok(line),
                byte if line.len() < LONGEST_NAME => line.push(byte),
                _ => {}
            }
        }
    }

    fn malformed(&self, why: &'static str) -> Stop {
        Stop::Error(PickleError::Malformed { offset: self.source.offset(), why })
    }

    /// Refuses what would take memory out of all proportion to the file.
    #[inline]
    fn check_size(&self) -> Result<(), Stop> {
        let values = self.stack.len() + self.marks.len() + self.memo.len() + self.objects.len();
        let offset = self.source.offset();
        let most = (VALUES_AT_LEAST + offset / BYTES_PER_VALUE).min(VALUES_AT_MOST);
        if values as u64 + self.items + self.texts > most {
            return Err(Stop::Error(PickleError::TooManyValues { offset }));
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Stop> {
        self.stack.push(value);
        self.check_size()
    }

    /// Checks that the stack has so many values since the newest mark.
    fn need(&self, values: usize) -> Result<(), Stop> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() < floor + values {
            return Err(self.malformed("an instruction for values that are not there"));
        }
        Ok(())
    }

    fn top(&self) -> Result<Value, Stop> {
        self.need(1)?;
        Ok(self.stack[self.stack.len() - 1])
    }

    fn pop(&mut self) -> Result<Value, Stop> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self) -> Result<usize, Stop> {
        self.marks.pop().ok_or_else(|| self.malformed("the end of something that did not begin"))
    }

    /// Keeps the top of the stack under a number. Python counts them, so a number leaves no gap.
    fn remember(&mut self, index: usize) -> Result<(), Stop> {
        let top = self.top()?;
        if index == self.memo.len() {
            self.memo.push(top);
        } else if let Some(known) = self.memo.get_mut(index) {
            *known = top;
        } else {
            return Err(self.malformed("a value remembered out of order"));
        }
        self.check_size()
    }

    #[inline]
    fn recall(&mut self, index: usize) -> Result<(), Stop> {
        match self.memo.get(index) {
            Some(value) => self.push(*value),
            None => Err(self.malformed("a value that was not remembered")),
        }
    }

    /// An integer of any length; one that no size, time or address needs is not kept.
    fn long(&mut self, length: u64) -> Result<(), Stop> {
        let mut bytes = [0_u8; 8];
        let (mut at, mut last) = (0, 0);
        self.source.pieces(length, |piece| {
            for byte in piece {
                if let Some(place) = bytes.get_mut(at) {
                    *place = *byte;
                }
                (at, last) = (at + 1, *byte);
            }
        })?;
        if at > bytes.len() {
            return self.push(Value::Other("a large number"));
        }
        if last >= 0x80 {
            bytes[at..].fill(0xff);
        }
        self.push(Value::Integer(i64::from_le_bytes(bytes)))
    }

    fn text(&mut self, length: u64) -> Result<(), Stop> {
        self.text.clear();
        let text = &mut self.text;
        self.source.pieces(length, |piece| {
            let room = LONGEST_TEXT.saturating_sub(text.len());
            text.extend_from_slice(&piece[..piece.len().min(room)]);
        })?;
        let text = String::from_utf8_lossy(&self.text);
        let id = self.fold.text(&text);
        self.last_texts.swap(0, 1);
        self.last_texts[1].clear();
        self.last_texts[1].extend_from_slice(&self.text[..self.text.len().min(LONGEST_NAME)]);
        self.texts += 1;
        self.push(Value::Text(id))
    }

    fn bytes(&mut self, length: u64) -> Result<(), Stop> {
        self.source.pieces(length, |_| {})?;
        self.push(Value::Other("bytes"))
    }

    /// Replaces what is above a place of the stack by a value of no interest.
    fn replace(&mut self, from: usize, what: &'static str) -> Result<(), Stop> {
        self.stack.truncate(from);
        self.push(Value::Other(what))
    }

    /// Appends what is above a place of the stack to the list just below it.
    fn append(&mut self, from: usize, may_fold: bool) -> Result<(), Stop> {
        let Some(Value::List(id)) = from.checked_sub(1).map(|below| self.stack[below]) else {
            return Err(self.malformed("items for something that is no list"));
        };
        let items = &self.stack[from..];
        let so_far = match self.objects.get(id) {
            Object::List(list) if list.is_empty() => None,
            Object::Folded(record) => Some(*record),
            _ => return self.extend(id, from),
        };
        match self.fold.list(so_far, items, &self.objects).filter(|_| may_fold) {
            Some(record) => {
                *self.objects.get_mut(id) = Object::Folded(record);
                self.stack.truncate(from);
                Ok(())
            }
            None if so_far.is_some() => Err(self.malformed("items that do not go with those before them")),
            None => self.extend(id, from),
        }
    }

    /// Sets keys and values above a place of the stack in the dict just below it.
    fn set_items(&mut self, from: usize, may_fold: bool) -> Result<(), Stop> {
        let Some(Value::Dict(id)) = from.checked_sub(1).map(|below| self.stack[below]) else {
            return Err(self.malformed("keys for something that is no dict"));
        };
        let items = &self.stack[from..];
        if !items.len().is_multiple_of(2) {
            return Err(self.malformed("a key without a value"));
        }
        match self.objects.get(id) {
            Object::Dict(dict) if dict.is_empty() && may_fold => {
                if let Some(record) = self.fold.dict(items, &self.objects) {
                    *self.objects.get_mut(id) = Object::Folded(record);
                    self.stack.truncate(from);
                    return Ok(());
                }
            }
            Object::Folded(_) => return Err(self.malformed("keys for something that was whole")),
            _ => {}
        }
        self.extend(id, from)
    }

    /// Moves what is above a place of the stack into a list or a dict.
    fn extend(&mut self, id: ObjectId, from: usize) -> Result<(), Stop> {
        let items = self.stack.drain(from..);
        self.items += items.len() as u64;
        if let Object::List(list) | Object::Dict(list) = self.objects.get_mut(id) {
            list.extend(items);
        } else {
            drop(items);
        }
        self.check_size()
    }

    /// Closes what is open, from the inside out, as if it had ended here; says what came first.
    fn close(&mut self) -> Value {
        while let Some(mark) = self.marks.pop() {
            let closed = match mark.checked_sub(1).map(|below| self.stack[below]) {
                Some(Value::Dict(_)) => {
                    self.close_lists_above(mark);
                    // The last key may be without its value.
                    let pairs = (self.stack.len() - mark) / 2 * 2;
                    self.stack.truncate(mark + pairs);
                    self.set_items(mark, false).is_ok()
                }
                Some(Value::List(_)) => self.append(mark, true).is_ok(),
                _ => false,
            };
            if !closed {
                self.stack.truncate(mark);
            }
        }
        self.close_lists_above(0);
        self.stack.first().copied().unwrap_or(Value::None)
    }

    /// A list of one item gets it without a mark: where a text should be the next key, and is something else, it was to
    /// go into the list before it.
    fn close_lists_above(&mut self, mark: usize) {
        while let [.., Value::List(_), item] = self.stack[mark..] {
            let position = self.stack.len() - 1 - mark;
            if !position.is_multiple_of(2)
                || matches!(item, Value::Text(_))
                || self.append(self.stack.len() - 1, false).is_err()
            {
                break;
            }
        }
    }
}

const TUPLE: &str = "a tuple";
const SET: &str = "a set";

fn dotted(module: &[u8], name: &[u8]) -> String {
    format!("{}.{}", module.escape_ascii(), name.escape_ascii())
}
