//! Ranges that PyTorch emits for its operators (`torch.autograd.profiler.emit_nvtx`), such as
//! `aten::mm, seq = 12, op_id = 34, sizes = [[64, 512], [512, 512]]`.

/// What follows the name of an operator.
const FIELDS: [&str; 5] = [", seq = ", ", stashed seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "];
/// How autograd calls what it runs: the one name of an operator that has a space in it.
const ENGINE: &str = "autograd::engine::evaluate_function";

/// What PyTorch says of a range that it emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Emitted<'a> {
    /// The name, without what follows it.
    pub(super) name: &'a str,
    /// The dimensions of its arguments, as a list of lists.
    pub(super) sizes: &'a str,
}

impl Emitted<'_> {
    /// What a range says, if PyTorch emitted it.
    pub(super) fn of(text: &str) -> Option<Emitted<'_>> {
        let end = FIELDS.iter().filter_map(|field| text.find(field)).min()?;
        let sizes = text.split_once(", sizes = ").map_or("", |(_, behind)| behind);
        let sizes = sizes.split_once(", input_op_ids = ").map_or(sizes, |(sizes, _)| sizes);
        Some(Emitted { name: &text[..end], sizes })
    }

    /// Whether it is an operator. Programs name ranges of their own in words.
    pub(super) fn is_operator(self) -> bool {
        !self.name.contains(' ') || self.name.starts_with(ENGINE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_emits() {
        for (text, name, sizes, is_operator) in [
            ("aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]]", "aten::mm", "[[2, 3], [3, 4]]", true),
            ("aten::empty, op_id = 990346", "aten::empty", "", true),
            ("aten::add, op_id = 3, sizes = [[2]], input_op_ids = [(1,0)]", "aten::add", "[[2]]", true),
            ("FSDP::pre_forward (blocks.1), op_id = 5", "FSDP::pre_forward (blocks.1)", "", false),
            (
                "autograd::engine::evaluate_function: MmBackward0, op_id = 7",
                "autograd::engine::evaluate_function: MmBackward0",
                "",
                true,
            ),
        ] {
            let emitted = Emitted::of(text).unwrap();
            assert_eq!((emitted.name, emitted.sizes, emitted.is_operator()), (name, sizes, is_operator), "{text}");
        }
        assert_eq!(Emitted::of("forward pass"), None);
        assert_eq!(Emitted::of(""), None);
    }
}
