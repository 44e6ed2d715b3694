//! The texts behind interned names.

use std::{collections::BTreeMap, fmt};

use cpp_demangle::DemangleOptions;

use crate::ids::{CounterId, NameId};

/// Ids below this are counters, so that one table holds both and a counter's id fits in 16 bits.
pub const FIRST_NAME: NameId = NameId(4096);

/// The names of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    texts: BTreeMap<NameId, String>,
}

impl Names {
    /// The text of a name, unless it was lost.
    pub fn get(&self, id: NameId) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// The name of a counter, unless it was lost.
    pub fn counter(&self, id: CounterId) -> Option<&str> {
        self.get(NameId(u32::from(id.0)))
    }

    /// Every name.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> {
        self.texts.iter().map(|(id, text)| (*id, text.as_str()))
    }
}

impl<'a> Extend<(NameId, &'a str)> for Names {
    fn extend<I: IntoIterator<Item = (NameId, &'a str)>>(&mut self, names: I) {
        self.texts.extend(names.into_iter().map(|(id, text)| (id, readable(text))));
    }
}

/// A name as people write it: compilers mangle those of C++, and where a program has nothing to read them with, recording
/// leaves them as they are. It is whole, as PyTorch's profiler has it, so that a kernel has one name wherever it was
/// recorded.
pub(crate) fn readable(text: &str) -> String {
    let mangled = text.starts_with("_Z").then(|| cpp_demangle::Symbol::new(text).ok()).flatten();
    let options = DemangleOptions::new().recursion_limit(MOST_NESTED);
    let mut name = Demangled { text: String::new(), most: MOST_GROWTH * text.len() + SHORT };
    let demangled = mangled.and_then(|symbol| symbol.structured_demangle(&mut name, &options).ok());
    demangled.map_or_else(|| text.to_owned(), |()| with_short_literals(&name.text))
}

/// A name while it is demangled, up to a length: a part may be named again and again, and name others.
struct Demangled {
    text: String,
    most: usize,
}

impl fmt::Write for Demangled {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > self.most {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// A demangled name with its numbers as most demanglers write them: `4096ul` for `(unsigned long)4096`.
fn with_short_literals(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find('(') {
        let literal = SUFFIXES.iter().find_map(|(kind, suffix)| Some((rest[at..].strip_prefix(kind)?, suffix)));
        let number = literal
            .map_or(0, |(after, _)| after.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(after.len()));
        short.push_str(&rest[..at]);
        rest = match literal {
            Some((after, suffix)) if number > 0 => {
                short.push_str(match (*suffix, &after[..number]) {
                    ("bool", "0") => "false",
                    ("bool", _) => "true",
                    (_, digits) => digits,
                });
                short.push_str(if *suffix == "bool" { "" } else { suffix });
                &after[number..]
            }
            _ => {
                short.push('(');
                &rest[at + 1..]
            }
        };
    }
    short + rest
}

/// How numbers of each type end.
const SUFFIXES: [(&str, &str); 7] = [
    ("(bool)", "bool"),
    ("(int)", ""),
    ("(unsigned int)", "u"),
    ("(long)", "l"),
    ("(unsigned long)", "ul"),
    ("(long long)", "ll"),
    ("(unsigned long long)", "ull"),
];

/// A kernel's name without what all kernels return and without its parameters, for where there is little room.
pub fn without_signature(name: &str) -> &str {
    let name = name.strip_prefix("void ").unwrap_or(name);
    let Some(inside) = name.strip_suffix(')') else { return name };
    let mut open = 1;
    let begin = inside.char_indices().rev().find(|(_, character)| {
        open += i32::from(*character == ')') - i32::from(*character == '(');
        open == 0
    });
    begin.map(|(begin, _)| &name[..begin]).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

/// How deep a mangled name may nest: files may come from anyone.
const MOST_NESTED: u32 = 96;
/// How much longer it may be when it is demangled, and how long any may be.
const MOST_GROWTH: usize = 16;
const SHORT: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_people_write_them() {
        for (name, readable_name) in [
            ("rms_norm", "rms_norm"),
            ("_Z3addIfEvPT_S1_", "void add<float>(float*, float*)"),
            (
                "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            ),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c108BFloat16EEESt5arrayIPcLm3EEEEviT0_T1_",
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)",
            ),
            ("_Z1fILb1ELb0EEvv", "void f<true, false>()"),
            (
                "_Z1fILin3ELj32ELl5ELm6ELx7ELy8ELs9ELc65EEvv",
                "void f<-3, 32u, 5l, 6ul, 7ll, 8ull, (short)9, (char)65>()",
            ),
            ("_ZN2at6native12_GLOBAL__N_11fEPFvvE", "at::native::(anonymous namespace)::f(void (*)())"),
            ("_Znot a name", "_Znot a name"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(readable(name), readable_name);
        }
        let deep = format!("_Z{}", "N".repeat(100_000));
        assert_eq!(readable(&deep), deep);
    }

    #[test]
    fn a_name_that_grows_with_every_part_stays_as_it_is() {
        // P<int, int>, and then P of the one before it, several times.
        let name = |parts: usize, times: usize| {
            let part = |part: char| format!("S_I{}E", format!("S{part}_").repeat(times));
            format!("_Z1f1PIiiE{}", ('0'..='9').take(parts).map(part).collect::<String>())
        };
        assert_eq!(readable(&name(1, 2)), "f(P<int, int>, P<P<int, int>, P<int, int> >)");
        assert_eq!(readable(&name(10, 32)), name(10, 32));
    }

    #[test]
    fn a_signature_can_be_left_out() {
        for (name, short) in [
            ("void add<float>(float*, float*)", "add<float>"),
            (
                "void at::(anonymous namespace)::f<(at::Reduce)1>(int (*)(int), at::T<void (*)()>)",
                "at::(anonymous namespace)::f<(at::Reduce)1>",
            ),
            ("gemm", "gemm"),
            ("(whole)", "(whole)"),
            ("unbalanced)", "unbalanced)"),
            ("é(é)", "é"),
            ("void ", ""),
        ] {
            assert_eq!(without_signature(name), short);
        }
    }
}
