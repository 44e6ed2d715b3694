//! Skips unused events without parsing them, where Kineto itself wrote the text.
//!
//! Functions of libraries and arrows are more than half of a trace. Kineto writes an event over several lines: the fields
//! are indented by four spaces, and the brace that closes it stands by itself behind two. No text of JSON has a line break
//! in it, so a line like that is the end of the event. Whatever looks different is read as any JSON is.

use memchr::memchr_iter;

use super::event::is_of_libraries;

/// How Kineto begins an event; what follows says which mark it leaves.
const BEGINNING: &str = "{\n    \"ph\": \"";

/// How long the event at the beginning of a text is, if it is one that can be skipped.
pub(super) fn skipped(text: &str) -> Option<usize> {
    if !is_of_no_use(text.strip_prefix(BEGINNING)?) {
        return None;
    }
    let bytes = text.as_bytes();
    for line in memchr_iter(b'\n', bytes) {
        match bytes.get(line + 1..line + 4)? {
            b"   " => {}
            b"  }" => return Some(line + 4),
            // Its end is missing, or this is the text of somebody else.
            _ => return None,
        }
    }
    None
}

/// Whether an event is an arrow, a copy of an annotation, or a function of libraries, by what stands behind its beginning.
#[inline(always)]
fn is_of_no_use(text: &str) -> bool {
    if let Some(text) = text.strip_prefix("X\", \"cat\": \"") {
        let function = text.strip_prefix("python_function\", \"name\": \"");
        let is_of_libraries = || function.and_then(|text| text.split('"').next()).is_some_and(is_of_libraries);
        return text.starts_with("gpu_user_annotation\",") || is_of_libraries();
    }
    text.starts_with("f\",") || text.starts_with("s\",")
}

#[cfg(test)]
mod tests {
    use super::skipped;

    #[test]
    fn events_of_no_use_are_skipped() {
        let event = "{\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"torch/a } b\", \"ts\": 1, \"dur\": 2,\n    \"args\": {\n      \
                     \"External id\": 1\n    }\n  }";
        assert_eq!(skipped(&format!("{event},\n  {{\n")), Some(event.len()));
        for end in 0..event.len() {
            assert_eq!(skipped(&event[..end]), None, "{end}");
        }
        let arrow = "{\n    \"ph\": \"f\", \"id\": 1,\n    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  }";
        assert_eq!(skipped(arrow), Some(arrow.len()));
    }

    #[test]
    fn anything_else_is_read() {
        for text in [
            "",
            "{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\"\n  }",
            "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"k\"\n  }",
            "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\"\n  }",
            "{\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"train.py(1): f\"\n  }",
            // The end of the first one is damaged.
            "{\n    \"ph\": \"f\", \"id\": 1\n  ?,\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\"\n  }",
            "{\n    \"ph\": \"f\", \"id\": 1,\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\"\n  }",
        ] {
            assert_eq!(skipped(text), None, "{text}");
        }
    }
}
