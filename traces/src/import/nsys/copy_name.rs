//! What a copy is called, in the words of PyTorch's profiler.

/// The directions, by their numbers in `ENUM_CUDA_MEMCPY_OPER`.
const DIRECTIONS: [&str; 14] =
    ["", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP", "HtoD", "DtoH", "DtoD"];
/// The first direction of those that the driver copies by itself, for unified memory.
const FIRST_UNIFIED: usize = 11;
/// The kinds of memory, by their numbers in `ENUM_CUDA_MEM_KIND`.
const KINDS: [&str; 8] =
    ["Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown"];

/// The name of a copy, such as `Memcpy HtoD (Pinned -> Device)`, from what it says of itself.
pub(super) fn copy_name(direction: Option<usize>, from: Option<usize>, to: Option<usize>) -> String {
    let named = direction.and_then(|direction| DIRECTIONS.get(direction)).filter(|name| !name.is_empty());
    let mut name = named.map_or("Memcpy".to_owned(), |direction| format!("Memcpy {direction}"));
    let kind = |kind: Option<usize>| kind.and_then(|kind| KINDS.get(kind));
    if direction >= Some(FIRST_UNIFIED) && named.is_some() {
        name.push_str(" (Unified Memory)");
    } else if let Some((from, to)) = kind(from).zip(kind(to)) {
        name.push_str(&format!(" ({from} -> {to})"));
    }
    name
}

/// The name of a set.
pub(super) fn set_name(memory: Option<usize>) -> String {
    let kind = memory.and_then(|kind| KINDS.get(kind));
    kind.map_or("Memset".to_owned(), |kind| format!("Memset ({kind})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_called_as_pytorch_calls_them() {
        for (direction, from, to, name) in [
            (Some(1), Some(1), Some(2), "Memcpy HtoD (Pinned -> Device)"),
            (Some(2), Some(2), Some(0), "Memcpy DtoH (Device -> Pageable)"),
            (Some(8), Some(2), Some(2), "Memcpy DtoD (Device -> Device)"),
            (Some(10), Some(2), Some(2), "Memcpy PtoP (Device -> Device)"),
            (Some(12), None, None, "Memcpy DtoH (Unified Memory)"),
            (Some(1), None, None, "Memcpy HtoD"),
            (Some(0), None, Some(2), "Memcpy"),
            (Some(99), Some(99), Some(2), "Memcpy"),
            (None, None, None, "Memcpy"),
        ] {
            assert_eq!(copy_name(direction, from, to), name);
        }
        assert_eq!(set_name(Some(2)), "Memset (Device)");
        assert_eq!(set_name(Some(99)), "Memset");
    }
}
