//! Follows the instructions of a pickle.

use std::io::Read;

use super::{
    PROTOCOLS,
    instruction::{self as code, runs},
    source::{Source, Stopped},
    store::Store,
    value::{Fold, Objects, Value},
};
use crate::error::PickleError;

/// How a pickle ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Ending {
    /// With its last instruction.
    Whole,
    /// Before that, or before the checksum of its gzip file: so many bytes it had announced are missing, and at least one.
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

/// Reads a pickle. One that is cut off is closed where it ends: lists and dicts have what was there of them, and a
/// dict that was not whole is not folded.
pub(in super::super) fn read<F: Fold>(reader: impl Read, fold: &mut F) -> Result<Pickle<F::Record>, PickleError> {
    let mut machine = Machine {
        source: Source::new(reader),
        store: Store::new(fold),
        last_texts: [const { Vec::new() }; 2],
        text: Vec::new(),
        frame_end: 0,
    };
    let (value, ending) = match machine.run() {
        Ok(value) if machine.source.ends_well() => (value, Ending::Whole),
        Ok(value) => (value, Ending::Cut { missing_bytes: 1 }),
        Err(Stop::Error(error)) => return Err(error),
        Err(Stop::End) => {
            let missing_bytes = machine.frame_end.saturating_sub(machine.source.offset()).max(1);
            (machine.store.close(), Ending::Cut { missing_bytes })
        }
    };
    Ok(Pickle { value, objects: machine.store.objects, ending })
}

/// Why the machine stopped early.
enum Stop {
    /// The bytes ended.
    End,
    /// Something is wrong.
    Error(PickleError),
}

impl From<PickleError> for Stop {
    fn from(error: PickleError) -> Stop {
        Stop::Error(error)
    }
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
    store: Store<'fold, F>,
    /// The two newest texts, for the name of what a pickle wants to run.
    last_texts: [Vec<u8>; 2],
    text: Vec<u8>,
    /// Where the newest frame says that it ends.
    frame_end: u64,
}

impl<F: Fold, R: Read> Machine<'_, F, R> {
    fn run(&mut self) -> Result<Value, Stop> {
        loop {
            self.store.offset = self.source.offset();
            let instruction = self.source.byte()?;
            match instruction {
                code::PROTO => {
                    let protocol = self.source.byte()?;
                    if !PROTOCOLS.contains(&protocol) {
                        return Err(self.store.malformed("an unknown format version").into());
                    }
                }
                code::FRAME => {
                    let length = u64::from_le_bytes(self.source.array()?);
                    self.frame_end = self.source.offset().saturating_add(length);
                }
                code::STOP => return Ok(self.store.pop()?),
                code::MARK => self.store.push_mark()?,
                code::POP => drop(self.store.pop()?),
                code::POP_MARK | code::ADDITEMS => {
                    let mark = self.store.mark()?;
                    self.store.forget(mark);
                }
                code::DUP => {
                    let top = self.store.top()?;
                    self.store.push(top)?;
                }
                code::MEMOIZE => self.store.remember_next()?,
                code::BINPUT => {
                    let index = self.source.byte()?;
                    self.store.remember(index.into())?;
                }
                code::LONG_BINPUT => {
                    let index = u32::from_le_bytes(self.source.array()?);
                    self.store.remember(index as usize)?;
                }
                code::BINGET => {
                    let index = self.source.byte()?;
                    self.store.recall(index.into())?;
                }
                code::LONG_BINGET => {
                    let index = u32::from_le_bytes(self.source.array()?);
                    self.store.recall(index as usize)?;
                }
                code::NONE => self.store.push(Value::None)?,
                code::NEWTRUE => self.store.push(Value::Bool(true))?,
                code::NEWFALSE => self.store.push(Value::Bool(false))?,
                code::BININT => {
                    let integer = i32::from_le_bytes(self.source.array()?);
                    self.store.push(Value::Integer(integer.into()))?;
                }
                code::BININT1 => {
                    let integer = self.source.byte()?;
                    self.store.push(Value::Integer(integer.into()))?;
                }
                code::BININT2 => {
                    let integer = u16::from_le_bytes(self.source.array()?);
                    self.store.push(Value::Integer(integer.into()))?;
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
                    self.store.push(Value::Float(float))?;
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
                code::EMPTY_LIST => self.store.push_list()?,
                code::EMPTY_DICT => self.store.push_dict()?,
                code::APPEND => {
                    let list = self.store.place(2)?;
                    self.store.append(list + 1, true)?;
                }
                code::APPENDS => {
                    let mark = self.store.mark()?;
                    self.store.append(mark, true)?;
                }
                code::SETITEM => {
                    let dict = self.store.place(3)?;
                    self.store.set_items(dict + 1, true)?;
                }
                code::SETITEMS => {
                    let mark = self.store.mark()?;
                    self.store.set_items(mark, true)?;
                }
                code::EMPTY_TUPLE => self.store.push_tuple()?,
                code::TUPLE => {
                    let mark = self.store.mark()?;
                    self.store.make_tuple(mark)?;
                }
                code::TUPLE1 | code::TUPLE2 | code::TUPLE3 => {
                    let items = usize::from(instruction - code::TUPLE1) + 1;
                    let from = self.store.place(items)?;
                    self.store.make_tuple(from)?;
                }
                code::EMPTY_SET => self.store.push(Value::Other(SET))?,
                code::FROZENSET => {
                    let mark = self.store.mark()?;
                    self.store.replace(mark, SET)?;
                }
                other => return Err(self.refusal(other)?),
            }
        }
    }

    /// Why an instruction is not followed.
    fn refusal(&mut self, instruction: u8) -> Result<Stop, Stop> {
        let offset = self.store.offset;
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
            return Ok(self.store.push(Value::Other("a large number"))?);
        }
        if last >= 0x80 {
            bytes[at..].fill(0xff);
        }
        Ok(self.store.push(Value::Integer(i64::from_le_bytes(bytes)))?)
    }

    fn text(&mut self, length: u64) -> Result<(), Stop> {
        self.text.clear();
        let text = &mut self.text;
        self.source.pieces(length, |piece| {
            let room = LONGEST_TEXT.saturating_sub(text.len());
            text.extend_from_slice(&piece[..piece.len().min(room)]);
        })?;
        self.last_texts.swap(0, 1);
        self.last_texts[1].clear();
        self.last_texts[1].extend_from_slice(&self.text[..self.text.len().min(LONGEST_NAME)]);
        Ok(self.store.push_text(&String::from_utf8_lossy(&self.text))?)
    }

    fn bytes(&mut self, length: u64) -> Result<(), Stop> {
        self.source.pieces(length, |_| {})?;
        Ok(self.store.push(Value::Other("bytes"))?)
    }
}

const SET: &str = "a set";

fn dotted(module: &[u8], name: &[u8]) -> String {
    format!("{}.{}", module.escape_ascii(), name.escape_ascii())
}
