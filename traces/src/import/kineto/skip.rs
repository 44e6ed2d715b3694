//! Skips unused events without parsing them, where Kineto itself wrote the text.
//!
//! Functions of libraries and arrows are more than half of a trace. Kineto writes an event over several lines: the fields
//! are indented by four spaces, and the brace that closes it stands by itself behind two. No text of JSON has a line break
//! in it, so a line like that is the end of the event. Whatever looks different is read as any JSON is.

use memchr::memchr_iter;

use super::event::is_of_libraries;

/// How Kineto begins the events that are skipped.
const BEGINNINGS: [&str; 3] =
    ["{\n    \"ph\": \"X\", \"cat\": \"gpu_user_annotation\",", "{\n    \"ph\": \"f\",", "{\n    \"ph\": \"s\","];

/// How it begins functions of Python; what follows is their name.
const FUNCTION: &str = "{\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"";

/// How long the event at the beginning of a text is, if it is one that can be skipped.
pub(super) fn skipped(text: &str) -> Option<usize> {
    let is_function = || text.strip_prefix(FUNCTION).is_some_and(is_of_libraries_here);
    if !BEGINNINGS.iter().any(|beginning| text.starts_with(*beginning)) && !is_function() {
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

/// Whether the name at the beginning of a text is that of a function of libraries.
fn is_of_libraries_here(text: &str) -> bool {
    text.split('"').next().is_some_and(is_of_libraries)
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
