//! What of a module goes to the device, as its cubin says: a 64-bit ELF object with sections for each kernel.

/// Bytes of the header, and of one section's header.
const HEADER: usize = 64;
const SECTION: usize = 64;

/// Part of a module that takes memory of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Code or constants of one kernel.
    Kernel(&'a [u8]),
    /// Variables and constants of all of them.
    Data,
}

/// The parts of a cubin and how large each is; none of what is no cubin.
pub(crate) fn parts(cubin: &[u8]) -> impl Iterator<Item = (Part<'_>, u64)> {
    let header = cubin.get(..HEADER).filter(|header| header.starts_with(b"\x7fELF\x02\x01"));
    let table = header.map_or(usize::MAX, |header| wide(header, 40));
    let (count, names) = header.map_or((0, 0), |header| (short(header, 60), short(header, 62)));
    let section = move |number: usize| {
        let start = table.checked_add(number.checked_mul(SECTION)?)?;
        cubin.get(start..start.checked_add(SECTION)?)
    };
    let names = section(names).map(|section| (wide(section, 24), wide(section, 32)));
    let names = names.and_then(|(start, length)| cubin.get(start..start.checked_add(length)?)).unwrap_or_default();
    (0..count).map_while(section).filter_map(move |section| {
        let name = names.get(word(section, 0)..)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        Some((part(name)?, wide(section, 32) as u64))
    })
}

/// What a section is of, by its name.
fn part(name: &[u8]) -> Option<Part<'_>> {
    if let Some(kernel) = name.strip_prefix(b".text.") {
        return Some(Part::Kernel(kernel));
    }
    if let Some(bank) = name.strip_prefix(b".nv.constant") {
        let kernel = bank.iter().position(|byte| *byte == b'.').map(|dot| &bank[dot + 1..]);
        return Some(kernel.map_or(Part::Data, Part::Kernel));
    }
    name.starts_with(b".nv.global").then_some(Part::Data)
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

fn wide(bytes: &[u8], at: usize) -> usize {
    word(bytes, at) | (word(bytes, at + 4) << 32)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An object with sections of these names and sizes.
    pub(crate) fn cubin(sections: &[(&str, u64)]) -> Vec<u8> {
        let mut names = b"\0".to_vec();
        let mut table = Vec::new();
        let mut add = |name: &str, place: u64, size: u64| {
            let mut section = [0; SECTION];
            section[..4].copy_from_slice(&(names.len() as u32).to_le_bytes());
            section[24..32].copy_from_slice(&place.to_le_bytes());
            section[32..40].copy_from_slice(&size.to_le_bytes());
            table.extend(section);
            names.extend([name.as_bytes(), b"\0"].concat());
        };
        sections.iter().for_each(|(name, size)| add(name, 0, *size));
        let lengths: usize = sections.iter().map(|(name, _)| name.len() + 1).sum();
        let all = 1 + lengths + ".shstrtab".len() + 1;
        add(".shstrtab", HEADER as u64, all as u64);
        let mut bytes = vec![0; HEADER];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&((HEADER + all) as u64).to_le_bytes());
        bytes[60..62].copy_from_slice(&(sections.len() as u16 + 1).to_le_bytes());
        bytes[62..64].copy_from_slice(&(sections.len() as u16).to_le_bytes());
        [bytes, names, table].concat()
    }

    #[test]
    fn kernels_and_data_take_memory_and_the_rest_does_not() {
        let bytes = cubin(&[
            (".symtab", 900),
            (".text._Z3addPf", 128),
            (".nv.info._Z3addPf", 40),
            (".nv.constant0._Z3addPf", 16),
            (".nv.shared._Z3addPf", 4096),
            (".nv.constant3", 64),
            (".nv.global", 1000),
            (".nv.global.init", 8),
        ]);
        let kernel = Part::Kernel(b"_Z3addPf");
        let expected = [(kernel, 128), (kernel, 16), (Part::Data, 64), (Part::Data, 1000), (Part::Data, 8)];
        assert_eq!(parts(&bytes).collect::<Vec<_>>(), expected);
    }

    proptest! {
        #[test]
        fn damage_is_no_panic(cut in 0_usize..700, at in 0_usize..700, byte: u8) {
            let mut bytes = cubin(&[(".text.kernel", 128), (".nv.global", 8)]);
            let length = bytes.len();
            bytes[at % length] = byte;
            prop_assert!(parts(&bytes[..cut.min(length)]).count() <= usize::from(u16::MAX));
        }
    }
}
