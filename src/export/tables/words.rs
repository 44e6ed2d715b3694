//! Texts of a rank, as tables have them: those of its names, and the words of closed sets.

use std::collections::HashMap;

use parquet::data_type::ByteArray;
use stepscope_analyzer::AlignedClock;
use stepscope_traces::{MemoryCategory, MemoryOperation, NameId, Names, Nanos, Origin, Phase, SpanKind};

/// Texts of a rank, each of them once, and its clock.
pub(super) struct Words {
    clock: AlignedClock,
    kinds: Vec<ByteArray>,
    phases: Vec<ByteArray>,
    operations: Vec<ByteArray>,
    categories: Vec<ByteArray>,
    names: HashMap<NameId, ByteArray>,
    origins: HashMap<NameId, OriginWords>,
}

/// Who launched something.
#[derive(Default)]
pub(super) struct OriginWords {
    pub(super) operator: Option<ByteArray>,
    pub(super) shapes: Option<ByteArray>,
    pub(super) module: Option<ByteArray>,
    pub(super) source: Option<ByteArray>,
}

impl Words {
    pub(super) fn new(clock: AlignedClock) -> Words {
        fn all<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Vec<ByteArray> {
            all.iter().map(|one| word(*one).into()).collect()
        }
        Words {
            clock,
            kinds: all(SpanKind::ALL, SpanKind::word),
            phases: all(Phase::ALL, Phase::word),
            operations: all(MemoryOperation::ALL, MemoryOperation::word),
            categories: all(MemoryCategory::ALL, MemoryCategory::word),
            names: HashMap::new(),
            origins: HashMap::new(),
        }
    }

    /// Takes notice of a name, before its row waits to be written.
    pub(super) fn learn_name(&mut self, id: NameId, names: &Names) {
        if !self.names.contains_key(&id) {
            self.names.extend(names.get(id).map(|text| (id, text.into())));
        }
    }

    /// Takes notice of who launched something.
    pub(super) fn learn_origin(&mut self, id: NameId, names: &Names) {
        if !self.origins.contains_key(&id) {
            let origin = |text| {
                let Origin { operator, shapes, module, source } = Origin::of(text);
                let [operator, shapes, module, source] =
                    [operator, shapes, module, source].map(|part| part.map(ByteArray::from));
                OriginWords { operator, shapes, module, source }
            };
            self.origins.extend(names.get(id).map(|text| (id, origin(text))));
        }
    }

    /// A time in the clock that all ranks are aligned to.
    pub(super) fn aligned(&self, time: Nanos) -> i64 {
        self.clock.at(time.0)
    }

    pub(super) fn kind(&self, kind: SpanKind) -> Option<ByteArray> {
        self.kinds.get(kind as usize).cloned()
    }

    pub(super) fn phase(&self, phase: Phase) -> Option<ByteArray> {
        self.phases.get(phase as usize).cloned()
    }

    pub(super) fn operation(&self, operation: MemoryOperation) -> Option<ByteArray> {
        self.operations.get(operation as usize).cloned()
    }

    pub(super) fn category(&self, category: MemoryCategory) -> Option<ByteArray> {
        self.categories.get(category as usize).cloned()
    }

    /// The text of a name; none, if it was lost.
    pub(super) fn name(&self, id: NameId) -> Option<ByteArray> {
        self.names.get(&id).cloned()
    }

    pub(super) fn origin(&self, id: NameId) -> Option<&OriginWords> {
        self.origins.get(&id)
    }
}
