//! Lists of hosts as Slurm writes them: `node[003-005,7],login1`.

/// The first host of a list.
pub(crate) fn first(list: &str) -> Option<String> {
    let list = list.trim();
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        None => name.to_owned(),
        Some(rest) => {
            let (numbers, after) = rest.split_once(']')?;
            let number = numbers.split([',', '-']).next().unwrap_or_default();
            let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
            // What follows may have a range of its own: `rack[1-2]node[3-4]`.
            let after = if after.starts_with(',') || after.is_empty() { String::new() } else { first(after)? };
            is_number.then(|| format!("{name}{number}{after}"))?
        }
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_is_found() {
        for (list, host) in [
            ("node1", Some("node1")),
            ("node1,node2", Some("node1")),
            ("node[003-005,7]", Some("node003")),
            ("node[7,9-12],login1", Some("node7")),
            ("gpu-a[10-11]-ib,other", Some("gpu-a10-ib")),
            ("rack[1-2]node[3-4]", Some("rack1node3")),
            ("a.b.example,c", Some("a.b.example")),
            ("", None),
            (",node", None),
            ("node[", None),
            ("node[]", None),
            ("node[x-y]", None),
        ] {
            assert_eq!(first(list).as_deref(), host, "{list}");
        }
    }
}
