//! Who launched something: the operator, what it was given, the module and the line of the program.

use crate::operators::{Gemm, OperatorWork, Shapes};

/// Stands between the parts of an origin's text. None of them has one.
const SEPARATOR: char = '\t';

/// Who launched something, as far as that is known.
///
/// A span names one by a text in the strings table, the four parts of which have tabs between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin<'a> {
    /// The operator, as PyTorch calls it: `aten::mm`.
    pub operator: Option<&'a str>,
    /// What it was given, as [`Shapes`](crate::Shapes) write themselves.
    pub shapes: Option<&'a str>,
    /// The module it belongs to, and those around it with `/` between them.
    pub module: Option<&'a str>,
    /// The function of the program: `train.py:12 forward`.
    pub source: Option<&'a str>,
}

impl<'a> Origin<'a> {
    /// Reads its text.
    pub fn of(text: &'a str) -> Origin<'a> {
        let mut parts = text.split(SEPARATOR).map(|part| Some(part).filter(|part| !part.is_empty()));
        let mut next = || parts.next().flatten();
        Origin { operator: next(), shapes: next(), module: next(), source: next() }
    }

    /// The operator and what it was given, in as few words as tell it from others: `aten::mm 4096×4096×14336`. None without
    /// an operator.
    pub fn work(&self) -> Option<String> {
        let operator = self.operator?;
        let Some(shapes) = self.shapes else { return Some(operator.to_owned()) };
        let gemm = shapes.parse::<Shapes>().ok().and_then(|shapes| OperatorWork::of(operator, &shapes, &[]).gemm);
        Some(match gemm {
            Some(Gemm { batch: 1, m, n, k }) => format!("{operator} {m}×{n}×{k}"),
            Some(Gemm { batch, m, n, k }) => format!("{operator} {batch} × {m}×{n}×{k}"),
            None => format!("{operator} {shapes}"),
        })
    }

    /// Its text.
    pub fn text(&self) -> String {
        let parts = [self.operator, self.shapes, self.module, self.source];
        let parts = parts.map(|part| part.unwrap_or_default().replace(SEPARATOR, " "));
        parts.join(&SEPARATOR.to_string()).trim_end_matches(SEPARATOR).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        for origin in [
            Origin::default(),
            Origin { operator: Some("aten::mm"), ..Origin::default() },
            Origin { module: Some("GPT/Block"), ..Origin::default() },
            Origin { operator: Some("a"), shapes: Some("b"), module: Some("c"), source: Some("d") },
        ] {
            assert_eq!(Origin::of(&origin.text()), origin);
        }
        let mm = Origin { operator: Some("aten::mm"), shapes: Some("bf16[8,4] bf16[4,2]"), ..Origin::default() };
        assert_eq!(mm.work().as_deref(), Some("aten::mm 8×2×4"));
        let add = Origin { operator: Some("aten::add"), shapes: Some("f32[8] f32[8]"), ..Origin::default() };
        assert_eq!(add.work().as_deref(), Some("aten::add f32[8] f32[8]"));
        let odd = Origin { operator: Some("a\tb"), ..Origin::default() };
        assert_eq!(Origin::of(&odd.text()).operator, Some("a b"));
    }
}
