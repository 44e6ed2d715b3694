//! A kernel's name, taken apart: `void a::b<C>(D)` is the function `b` of the namespace `a`, with `C` as its argument.

use std::borrow::Cow;

use super::words::Words;
use crate::names::readable;

/// The parts of a kernel's name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelName<'a> {
    /// All of it, but its parameters and what it returns.
    pub(super) text: Cow<'a, str>,
    /// The namespaces and the classes it is in, with `::` between them.
    pub(super) namespace: String,
    /// Its own name.
    pub(super) function: String,
    /// The arguments of its templates.
    pub(super) arguments: String,
}

/// The words of a name's parts.
pub(super) struct NameWords {
    pub(super) function: Words,
    pub(super) arguments: Words,
}

impl KernelName<'_> {
    /// The parts of a name, however damaged it is.
    pub(super) fn of(name: &str) -> KernelName<'_> {
        let name = name.trim();
        // The loader of AMD's GPUs marks kernels so.
        let name = name.strip_suffix(".kd").or(name.strip_suffix(" [clone .kd]")).unwrap_or(name);
        let mut text = demangled(name);
        for anonymous in ANONYMOUS {
            if text.contains(anonymous) {
                text = text.replace(anonymous, "_anonymous_").into();
            }
        }
        let (mut path, mut arguments) = (String::new(), String::new());
        // What is open: arguments of templates, or parentheses among them.
        let mut open: Vec<char> = Vec::new();
        let (mut start, mut end) = (0, text.len());
        for (at, letter) in text.char_indices() {
            match letter {
                // Parameters: nothing behind them is of the kernel itself.
                '(' if open.is_empty() && !path.is_empty() => {
                    end = at;
                    break;
                }
                // What stood before is what it returns.
                ' ' if open.is_empty() => {
                    start = at + 1;
                    path.clear();
                    arguments.clear();
                    continue;
                }
                '<' | '(' => open.push(letter),
                '>' | ')' if open.last() == Some(&(if letter == '>' { '<' } else { '(' })) => {
                    open.pop();
                    if open.is_empty() {
                        arguments.push(' ');
                        continue;
                    }
                }
                _ => {}
            }
            if open.is_empty() { path.push(letter) } else { arguments.push(letter) }
        }
        let (namespace, function) = path.rsplit_once("::").unwrap_or(("", &path));
        let (namespace, function) = (namespace.to_owned(), function.to_owned());
        let text = match text {
            Cow::Borrowed(text) => Cow::Borrowed(&text[start..end]),
            Cow::Owned(text) => Cow::Owned(text[start..end].to_owned()),
        };
        KernelName { text, namespace, function, arguments }
    }

    /// The words of its parts.
    pub(super) fn words(&self) -> NameWords {
        NameWords { function: Words::of(&self.function), arguments: Words::of(&self.arguments) }
    }

    /// Whether it is in a namespace, which may have several parts.
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        let is_whole = |(at, _): (usize, &str)| {
            let end = at + namespace.len();
            let begins = at == 0 || self.namespace[..at].ends_with("::");
            begins && (end == self.namespace.len() || self.namespace[end..].starts_with("::"))
        };
        self.namespace.match_indices(namespace).any(is_whole)
    }
}

/// How demanglers call a namespace without a name.
const ANONYMOUS: [&str; 2] = ["(anonymous namespace)", "<unnamed>"];

/// A name as people write it.
fn demangled(name: &str) -> Cow<'_, str> {
    if !name.starts_with("_Z") {
        return name.into();
    }
    let text = readable(name);
    if text == name { path_of(name).unwrap_or(text).into() } else { text.into() }
}

/// The namespaces and the function of a name that cannot be demangled whole: a newer compiler wrote it, or it is cut off.
/// What it is called stands at its beginning, each part with its length.
fn path_of(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("_Z")?.trim_start_matches('N');
    let mut parts: Vec<&str> = Vec::new();
    loop {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        let Ok(length) = rest[..digits].parse::<usize>() else { break };
        let Some(part) = digits.checked_add(length).and_then(|end| rest.get(digits..end)) else { break };
        parts.push(if part.starts_with("_GLOBAL__N_") { ANONYMOUS[0] } else { part });
        rest = &rest[digits + length..];
    }
    // The names among its arguments tell of it, too.
    let arguments = rest.strip_prefix('I').map(|arguments| format!("<{arguments}>")).unwrap_or_default();
    (!parts.is_empty()).then(|| parts.join("::") + &arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (name, namespace, function, arguments) in [
            ("triton_poi_fused_add_0", "", "triton_poi_fused_add_0", ""),
            ("Cijk_Ailk_Bljk_BBS_BH_MT128x128x64.kd", "", "Cijk_Ailk_Bljk_BBS_BH_MT128x128x64", ""),
            ("void at::native::f<4, at::G<float> >(int, at::G<float>)", "at::native", "f", "<4, at::G<float>  "),
            ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "", "ncclDevKernel_AllGather_RING_LL", ""),
            (
                "void (anonymous namespace)::softmax_warp_forward<c10::Half>(int)",
                "_anonymous_",
                "softmax_warp_forward",
                "<c10::Half ",
            ),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(T)",
                "internal::gemvx",
                "kernel",
                "<int ",
            ),
            (
                "std::enable_if<(((8)>(0)))&&a<b>::c, void>::type vllm::norm<c10::Half, 8>(T)",
                "vllm",
                "norm",
                "<c10::Half, 8 ",
            ),
            (
                "void <unnamed>::index_kernel<float, (int)4>(const long *)",
                "_anonymous_",
                "index_kernel",
                "<float, (int)4 ",
            ),
            ("_ZN5aiter12quant_kernelIfLi256EEEvPT_i", "aiter", "quant_kernel", "<float, 256 "),
            ("void f(", "", "f", ""),
            ("<<<", "", "", "<<<"),
            ("", "", "", ""),
        ] {
            let parsed = KernelName::of(name);
            let parts = (parsed.namespace.as_str(), parsed.function.as_str(), parsed.arguments.as_str());
            assert_eq!(parts, (namespace, function, arguments), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_demangled_is_read_as_far_as_it_goes() {
        for (name, expected) in [
            ("_Z", None),
            ("_Znot a name", None),
            ("_Z99999999999999999999x", None),
            (
                "_ZN7sgl_hip3act6kernelI14__hip_bfloat16TnPFT_RKS3_EXad",
                Some("sgl_hip::act::kernel<14__hip_bfloat16TnPFT_RKS3_EXad>"),
            ),
            ("_ZN2at6native12_GLOBAL__N_16kernelINS_4cut", Some("at::native::(anonymous namespace)::kernel<NS_4cut>")),
        ] {
            assert_eq!(path_of(name).as_deref(), expected);
        }
    }

    #[test]
    fn namespaces_are_whole() {
        let name = KernelName::of("void dpsk::ep::internode::combine<false>(int)");
        for (namespace, expected) in [
            ("dpsk::ep", true),
            ("ep", true),
            ("ep::internode", true),
            ("dpsk", true),
            ("ps", false),
            ("intern", false),
        ] {
            assert_eq!(name.is_in(namespace), expected, "{namespace}");
        }
    }
}
