//! What a pickle is made of.

/// A text, by the number that the caller gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TextId(pub(in super::super) u32);

/// A list or a dict in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) struct ObjectId(u32);

/// A value. Containers are named, not held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) enum Value {
    None,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(TextId),
    List(ObjectId),
    Dict(ObjectId),
    Tuple(ObjectId),
    /// A value of no interest, in a word: what is in it is not kept.
    Other(&'static str),
}

/// Makes little of what is whole.
pub(in super::super) trait Fold {
    /// What is left of a list or a dict.
    type Record: Copy;

    /// A text.
    fn text(&mut self, text: &str) -> TextId;

    /// A dict of keys and values in turns, if it is one of those to fold.
    fn dict(&mut self, items: &[Value], objects: &Objects<Self::Record>) -> Option<Self::Record>;

    /// A list that begins with these items, or goes on with them, if it is one of those to fold.
    fn list(
        &mut self,
        so_far: Option<Self::Record>,
        items: &[Value],
        objects: &Objects<Self::Record>,
    ) -> Option<Self::Record>;
}

/// A list or a dict, or what is left of one.
#[derive(Debug)]
pub(super) enum Object<R> {
    List(Vec<Value>),
    /// Keys and values in turns.
    Dict(Vec<Value>),
    Folded(R),
}

/// Every list and dict of a pickle.
#[derive(Debug)]
pub(in super::super) struct Objects<R> {
    objects: Vec<Object<R>>,
}

/// A list: its items, or what it was folded to.
pub(in super::super) enum List<'objects, R> {
    Items(&'objects [Value]),
    Folded(R),
}

impl<R: Copy> Objects<R> {
    pub(super) fn new() -> Objects<R> {
        Objects { objects: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// How many values are in them.
    pub(super) fn values(&self) -> usize {
        let items = |object: &Object<R>| match object {
            Object::List(items) | Object::Dict(items) => items.len() + 1,
            Object::Folded(_) => 1,
        };
        self.objects.iter().map(items).sum()
    }

    pub(super) fn add(&mut self, object: Object<R>) -> ObjectId {
        // The machine stops long before there are more than that.
        let id = ObjectId(self.objects.len() as u32);
        self.objects.push(object);
        id
    }

    pub(super) fn get(&self, id: ObjectId) -> &Object<R> {
        &self.objects[id.0 as usize]
    }

    pub(super) fn get_mut(&mut self, id: ObjectId) -> &mut Object<R> {
        &mut self.objects[id.0 as usize]
    }

    /// What a value was folded to, if it was.
    pub(in super::super) fn record(&self, value: Value) -> Option<R> {
        match value {
            Value::List(id) | Value::Dict(id) => match self.get(id) {
                Object::Folded(record) => Some(*record),
                _ => None,
            },
            _ => None,
        }
    }

    /// A list, if a value is one.
    pub(in super::super) fn list(&self, value: Value) -> Option<(ObjectId, List<'_, R>)> {
        let Value::List(id) = value else { return None };
        match self.get(id) {
            Object::List(items) => Some((id, List::Items(items))),
            Object::Folded(record) => Some((id, List::Folded(*record))),
            Object::Dict(_) => None,
        }
    }

    /// What is in a list or a tuple that was not folded, if a value is one.
    pub(in super::super) fn items(&self, value: Value) -> Option<&[Value]> {
        let (Value::List(id) | Value::Tuple(id)) = value else { return None };
        match self.get(id) {
            Object::List(items) => Some(items),
            _ => None,
        }
    }

    /// Keys and values in turns of a dict that was not folded, if a value is one.
    pub(in super::super) fn dict(&self, value: Value) -> Option<&[Value]> {
        let Value::Dict(id) = value else { return None };
        match self.get(id) {
            Object::Dict(items) => Some(items),
            _ => None,
        }
    }
}
