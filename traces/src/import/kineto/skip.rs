//! Skips unused events without parsing them, where Kineto itself wrote the text.
//!
//! Operators of the host, but those that say what is communicated, and arrows are more than half of a trace. Kineto writes an event over several lines: the fields
//! are indented by four spaces, and the brace that closes it stands by itself behind two. No text of JSON has a line break
//! in it, so a line like that is the end of the event. Whatever looks different is read as any JSON is.

use memchr::memchr_iter;

/// How Kineto begins the events that are skipped.
const BEGINNINGS: [&str; 5] = [
    "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\",",
    "{\n    \"ph\": \"X\", \"cat\": \"python_function\",",
    "{\n    \"ph\": \"X\", \"cat\": \"gpu_user_annotation\",",
    "{\n    \"ph\": \"f\",",
    "{\n    \"ph\": \"s\",",
];

/// How the event of an operator goes on that is not skipped.
const WANTED: &str = " \"name\": \"record_param_comms\"";

/// How long the event at the beginning of a text is, if it is one that can be skipped.
pub(super) fn skipped(text: &str) -> Option<usize> {
    let rest = BEGINNINGS.iter().find_map(|beginning| text.strip_prefix(*beginning))?;
    if rest.starts_with(WANTED) {
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

#[cfg(test)]
mod tests {
    use super::skipped;

    #[test]
    fn events_of_no_use_are_skipped() {
        let event = "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a } b\", \"ts\": 1, \"dur\": 2,\n    \"args\": {\n      \
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
            "{\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\"\n  }",
            // The end of the first one is damaged.
            "{\n    \"ph\": \"f\", \"id\": 1\n  ?,\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\"\n  }",
            "{\n    \"ph\": \"f\", \"id\": 1,\n  {\n    \"ph\": \"X\", \"cat\": \"kernel\"\n  }",
        ] {
            assert_eq!(skipped(text), None, "{text}");
        }
    }
}
