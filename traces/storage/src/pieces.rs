//! Pieces of files that grow. An object is whole or not there and cannot be added to, so a table's file is several of them:
//!
//! ```text
//! spans.arrows              the first 8 MiB
//! spans.arrows.part-00001   the next 8 MiB, and so on
//! ```
//!
//! Only the last piece is sent again when the file has grown, and no piece is sent before the one ahead of it is full. So the
//! pieces that are there are the beginning of the file at every moment, and most recordings are one object for each file.

/// How long a piece is. The least for parts of objects in S3 is 5 MiB, and stores charge by the request.
pub(crate) const PIECE: u64 = 8 << 20;

const MARK: &str = ".part-";

/// What a piece of a file is called.
pub(crate) fn name(file: &str, piece: u64) -> String {
    if piece == 0 { file.to_owned() } else { format!("{file}{MARK}{piece:05}") }
}

/// Which file an object is a piece of, and which one.
pub(crate) fn file_of(object: &str) -> (&str, u64) {
    let piece = object.rsplit_once(MARK).and_then(|(file, number)| Some((file, number.parse().ok()?)));
    piece.filter(|(file, piece)| *piece > 0 && name(file, *piece) == object).unwrap_or((object, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_known_by_their_names() {
        for piece in [0, 1, 99_999, 100_000] {
            assert_eq!(file_of(&name("rank-00000/spans.arrows", piece)), ("rank-00000/spans.arrows", piece));
        }
        for other in ["a.part-1", "a.part-00000", "a.part-x", "a.part-"] {
            assert_eq!(file_of(other), (other, 0));
        }
    }
}
