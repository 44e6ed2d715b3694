//! What the machine works on: its stack, what it remembers, and the lists and dicts it makes.

use super::value::{Fold, Object, ObjectId, Objects, Value};
use crate::error::PickleError;

/// A small file may have this many values.
const VALUES_AT_LEAST: u64 = 1 << 20;

/// A large one has at most one for so many bytes. A snapshot has one for about 24 of them, and one for 8 without stacks.
const BYTES_PER_VALUE: u64 = 4;

/// However large it is: values are numbered in 32 bits.
const VALUES_AT_MOST: u64 = 1 << 31;

/// What the machine works on.
pub(super) struct Store<'fold, F: Fold> {
    pub(super) fold: &'fold mut F,
    pub(super) objects: Objects<F::Record>,
    /// Where in the file the instruction begins that is followed.
    pub(super) offset: u64,
    stack: Vec<Value>,
    /// How long the stack was at each mark.
    marks: Vec<usize>,
    memo: Vec<Value>,
    /// Values in containers.
    items: u64,
    /// Texts, however often the same.
    texts: u64,
}

impl<'fold, F: Fold> Store<'fold, F> {
    pub(super) fn new(fold: &'fold mut F) -> Store<'fold, F> {
        let (stack, marks, memo) = (Vec::new(), Vec::new(), Vec::new());
        Store { fold, objects: Objects::new(), offset: 0, stack, marks, memo, items: 0, texts: 0 }
    }

    pub(super) fn malformed(&self, why: &'static str) -> PickleError {
        PickleError::Malformed { offset: self.offset, why }
    }

    /// Refuses what would take memory out of all proportion to the file.
    #[inline]
    fn check_size(&self) -> Result<(), PickleError> {
        let values = self.stack.len() + self.marks.len() + self.memo.len() + self.objects.len();
        let most = (VALUES_AT_LEAST + self.offset / BYTES_PER_VALUE).min(VALUES_AT_MOST);
        if values as u64 + self.items + self.texts > most {
            return Err(PickleError::TooManyValues { offset: self.offset });
        }
        Ok(())
    }

    #[inline]
    pub(super) fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.stack.push(value);
        self.check_size()
    }

    /// Checks that the stack has this many values since the newest mark.
    fn need(&self, values: usize) -> Result<(), PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() < floor + values {
            return Err(self.malformed("an instruction without its operands"));
        }
        Ok(())
    }

    pub(super) fn top(&self) -> Result<Value, PickleError> {
        self.need(1)?;
        Ok(self.stack[self.stack.len() - 1])
    }

    pub(super) fn pop(&mut self) -> Result<Value, PickleError> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    pub(super) fn mark(&mut self) -> Result<usize, PickleError> {
        self.marks.pop().ok_or_else(|| self.malformed("an end without a start"))
    }

    /// Keeps the top of the stack under a number. Python counts them, so a number leaves no gap.
    pub(super) fn remember(&mut self, index: usize) -> Result<(), PickleError> {
        let top = self.top()?;
        if index == self.memo.len() {
            self.memo.push(top);
        } else if let Some(known) = self.memo.get_mut(index) {
            *known = top;
        } else {
            return Err(self.malformed("a memo entry out of order"));
        }
        self.check_size()
    }

    #[inline]
    pub(super) fn recall(&mut self, index: usize) -> Result<(), PickleError> {
        match self.memo.get(index) {
            Some(value) => self.push(*value),
            None => Err(self.malformed("a missing memo entry")),
        }
    }

    /// Adds a text.
    pub(super) fn push_text(&mut self, text: &str) -> Result<(), PickleError> {
        let id = self.fold.text(text);
        self.texts += 1;
        self.push(Value::Text(id))
    }

    /// Adds an empty list.
    pub(super) fn push_list(&mut self) -> Result<(), PickleError> {
        let list = self.objects.add(Object::List(Vec::new()));
        self.push(Value::List(list))
    }

    /// Adds an empty tuple.
    pub(super) fn push_tuple(&mut self) -> Result<(), PickleError> {
        let tuple = self.objects.add(Object::List(Vec::new()));
        self.push(Value::Tuple(tuple))
    }

    /// Replaces what is above a place of the stack by a tuple of it.
    pub(super) fn make_tuple(&mut self, from: usize) -> Result<(), PickleError> {
        let tuple = self.objects.add(Object::List(Vec::new()));
        self.extend(tuple, from)?;
        self.push(Value::Tuple(tuple))
    }

    /// Adds an empty dict.
    pub(super) fn push_dict(&mut self) -> Result<(), PickleError> {
        let dict = self.objects.add(Object::Dict(Vec::new()));
        self.push(Value::Dict(dict))
    }

    /// Marks the place from which on values go together.
    pub(super) fn push_mark(&mut self) -> Result<(), PickleError> {
        self.marks.push(self.stack.len());
        self.check_size()
    }

    /// The place this many values below the top.
    pub(super) fn place(&self, values: usize) -> Result<usize, PickleError> {
        self.need(values)?;
        Ok(self.stack.len() - values)
    }

    /// Forgets what is above a place of the stack.
    pub(super) fn forget(&mut self, from: usize) {
        self.stack.truncate(from);
    }

    /// Keeps the top of the stack under the next number.
    pub(super) fn remember_next(&mut self) -> Result<(), PickleError> {
        self.remember(self.memo.len())
    }

    /// Replaces what is above a place of the stack by a value of no interest.
    pub(super) fn replace(&mut self, from: usize, what: &'static str) -> Result<(), PickleError> {
        self.stack.truncate(from);
        self.push(Value::Other(what))
    }

    /// Appends what is above a place of the stack to the list just below it.
    pub(super) fn append(&mut self, from: usize, may_fold: bool) -> Result<(), PickleError> {
        let Some(Value::List(id)) = from.checked_sub(1).map(|below| self.stack[below]) else {
            return Err(self.malformed("items for something that is not a list"));
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
            None if so_far.is_some() => Err(self.malformed("items that do not match those before them")),
            None => self.extend(id, from),
        }
    }

    /// Sets keys and values above a place of the stack in the dict just below it.
    pub(super) fn set_items(&mut self, from: usize, may_fold: bool) -> Result<(), PickleError> {
        let Some(Value::Dict(id)) = from.checked_sub(1).map(|below| self.stack[below]) else {
            return Err(self.malformed("keys for something that is not a dict"));
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
            Object::Folded(_) => return Err(self.malformed("keys for something that was already complete")),
            _ => {}
        }
        self.extend(id, from)
    }

    /// Moves what is above a place of the stack into a list or a dict.
    fn extend(&mut self, id: ObjectId, from: usize) -> Result<(), PickleError> {
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
    pub(super) fn close(&mut self) -> Value {
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
