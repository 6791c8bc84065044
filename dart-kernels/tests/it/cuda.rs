//! The GPU operations: what can be checked without a GPU, and with one the operations themselves.

use std::path::Path;

use dart_kernels::{
    Clip, Importance, Kl, KlEstimate, KlGradient, RatioLevel, Surrogate, Token, TokenLoss,
    WeightLevel,
    cuda::{Error, Gpu, abi, plan},
};

/// The text of `cuda/abi.cuh`.
fn header() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda/abi.cuh");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn opening_no_gpu_is_an_error_that_says_what_to_do() {
    // No machine has this one, so that the test is the same everywhere.
    let error = Gpu::open(1_000_000).unwrap_err();
    let expected = matches!(error, Error::Library { .. } | Error::NoDevice { .. });
    assert!(expected, "{error:?}");
    let text = error.to_string();
    assert!(text.contains("driver"), "{text}");
}

/// Number after `pattern` in the header.
fn number_after(header: &str, pattern: &str) -> u64 {
    let at = header
        .find(pattern)
        .unwrap_or_else(|| panic!("`{pattern}` in abi.cuh"));
    let rest = header[at + pattern.len()..].trim_start();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("a number after `{pattern}`"))
}

#[test]
fn structs_have_the_sizes_of_the_header() {
    let header = header();
    for (name, size) in [
        ("RowStats", size_of::<abi::RowStats>()),
        ("Token", size_of::<abi::Token>()),
        ("SequenceTerm", size_of::<abi::SequenceTerm>()),
        ("Loss", size_of::<abi::Loss>()),
        ("Outcome", size_of::<abi::Outcome>()),
        ("LossSums", size_of::<abi::LossSums>()),
    ] {
        let written = number_after(&header, &format!("sizeof({name}) == "));
        assert_eq!(written, size as u64, "{name}");
    }
}

/// Names and types of a struct's fields in the header, in their order.
fn fields(header: &str, name: &str) -> Vec<(String, String)> {
    let start = header.find(&format!("struct {name} {{")).unwrap();
    let body = &header[start..][..header[start..].find("};").unwrap()];
    let code = body
        .lines()
        .skip(1)
        .map(|line| line.split("//").next().unwrap());
    let code: String = code.collect::<Vec<_>>().join(" ");
    let mut fields = Vec::new();
    for declaration in code.split(';').map(str::trim).filter(|d| !d.is_empty()) {
        let (kind, names) = declaration.split_once(' ').unwrap();
        fields.extend(
            names
                .split(',')
                .map(|name| (name.trim().to_owned(), kind.to_owned())),
        );
    }
    fields
}

/// Checks that each field of the mirror stands where the header's field of that name stands.
macro_rules! same_fields {
    ($header:expr, $name:ident { $($field:ident),* $(,)? }) => {{
        let mirror = [$((stringify!($field), std::mem::offset_of!(abi::$name, $field))),*];
        let written = fields($header, stringify!($name));
        let mut offset = 0;
        for (index, (name, kind)) in written.iter().enumerate() {
            assert_eq!((name.as_str(), offset), mirror[index], "{} of {}", index, stringify!($name));
            offset += match kind.as_str() {
                "float" | "int" | "unsigned" => 4,
                "double" | "u64" => 8,
                other => panic!("type `{other}` in abi.cuh"),
            };
        }
        assert_eq!(written.len(), mirror.len(), "fields of {}", stringify!($name));
    }};
}

#[test]
#[rustfmt::skip]
fn fields_of_tokens_stand_where_the_header_has_them() {
    let header = header();
    same_fields!(
        &header,
        RowStats {
            log_prob, entropy, log_sum_exp, complement, max, sum, status, unused,
        }
    );
    same_fields!(
        &header,
        Token {
            target, inverse_temperature, weight, advantage, old_log_prob, rollout_log_prob,
            reference_log_prob, present,
        }
    );
    same_fields!(
        &header,
        SequenceTerm {
            log_ratio, importance,
        }
    );
}

#[test]
#[rustfmt::skip]
fn fields_of_losses_stand_where_the_header_has_them() {
    let header = header();
    same_fields!(
        &header,
        Loss {
            surrogate, ratio_level, clip_low, clip_high, dual_clip, ratio_cap, tau_positive,
            tau_negative, prime_high, prime_low, prime_penalty, importance, importance_level,
            importance_low, importance_high, kl_beta, kl_estimate, kl_gradient, kl_times_ratio,
            entropy_bonus,
        }
    );
    same_fields!(
        &header,
        Outcome {
            loss, surrogate, importance, kl, by_log_prob, by_entropy, clip, log_ratio,
        }
    );
    same_fields!(
        &header,
        LossSums {
            loss, surrogate, log_prob, entropy, kl, importance, importance_squared,
            importance_max, ratio_k1, ratio_k3, tokens, clip_low, clip_high, clip_dual,
            importance_bound, not_finite, all_masked, bad_label, target_masked,
        }
    );
}

/// Value of an enumerator.
fn constant(header: &str, name: &str) -> i32 {
    number_after(header, &format!("{name} = ")) as i32
}

#[test]
fn constants_are_those_of_the_header() {
    let header = header();
    for (name, value) in [
        ("ROW_NOT_FINITE", abi::ROW_NOT_FINITE),
        ("ROW_ALL_MASKED", abi::ROW_ALL_MASKED),
        ("ROW_BAD_LABEL", abi::ROW_BAD_LABEL),
        ("ROW_TARGET_MASKED", abi::ROW_TARGET_MASKED),
        ("ROW_NOT_READ", abi::ROW_NOT_READ),
        ("HAS_OLD", abi::HAS_OLD),
        ("HAS_ROLLOUT", abi::HAS_ROLLOUT),
        ("HAS_REFERENCE", abi::HAS_REFERENCE),
    ] {
        assert_eq!(constant(&header, name), value as i32, "{name}");
    }
    for (name, value) in [
        ("MAX_THREADS", abi::MAX_THREADS),
        ("CLUSTER_SIZE", abi::CLUSTER_SIZE),
        ("METRIC_BLOCKS", abi::METRIC_BLOCKS),
        ("METRIC_THREADS", abi::METRIC_THREADS),
    ] {
        assert_eq!(
            number_after(&header, &format!("#define {name} ")),
            u64::from(value),
            "{name}"
        );
    }
}

#[test]
fn surrogates_have_the_numbers_of_the_header() {
    let header = header();
    let flat = |surrogate| {
        abi::Loss::from(&TokenLoss {
            surrogate,
            ..TokenLoss::PAPER
        })
    };
    let clip = Clip {
        dual: Some(3.0),
        ratio_cap: Some(4.0),
        ..Clip::new(0.2, 0.28)
    };
    let clipped = flat(Surrogate::Clipped(clip));
    assert_eq!(clipped.surrogate, constant(&header, "SURROGATE_CLIPPED"));
    let numbers = [
        clipped.clip_low,
        clipped.clip_high,
        clipped.dual_clip,
        clipped.ratio_cap,
    ];
    assert_eq!(numbers, [0.2, 0.28, 3.0, 4.0]);
    let plain = flat(Surrogate::Clipped(Clip::new(0.2, 0.28)));
    assert_eq!((plain.dual_clip, plain.ratio_cap), (0.0, 0.0));
    let likelihood = flat(Surrogate::LogLikelihood);
    assert_eq!(
        likelihood.surrogate,
        constant(&header, "SURROGATE_LOG_LIKELIHOOD")
    );
    let cispo = flat(Surrogate::Cispo {
        low: None,
        high: 3.0,
    });
    assert_eq!(cispo.surrogate, constant(&header, "SURROGATE_CISPO"));
    assert!(cispo.clip_low < 0.0 && cispo.clip_high == 3.0);
    let sapo = flat(Surrogate::Sapo {
        positive: 1.0,
        negative: 1.05,
    });
    assert_eq!(sapo.surrogate, constant(&header, "SURROGATE_SAPO"));
    assert_eq!((sapo.tau_positive, sapo.tau_negative), (1.0, 1.05));
    let prime = flat(Surrogate::Prime {
        low: 0.1,
        high: 0.2,
        penalty: 0.5,
    });
    assert_eq!(prime.surrogate, constant(&header, "SURROGATE_PRIME"));
    assert_eq!(
        (prime.prime_low, prime.prime_high, prime.prime_penalty),
        (0.1, 0.2, 0.5)
    );
}

#[test]
fn weights_and_kl_have_the_numbers_of_the_header() {
    let header = header();
    for (level, name) in [
        (WeightLevel::Token, "LEVEL_TOKEN"),
        (WeightLevel::SequenceSum, "LEVEL_SEQUENCE_SUM"),
        (WeightLevel::SequenceMean, "LEVEL_SEQUENCE_MEAN"),
    ] {
        let importance = Importance::Masked {
            level,
            low: 0.5,
            high: 2.0,
        };
        let flat = abi::Loss::from(&TokenLoss {
            importance,
            ..TokenLoss::PAPER
        });
        assert_eq!(flat.importance, constant(&header, "IMPORTANCE_MASKED"));
        assert_eq!(flat.importance_level, constant(&header, name));
        assert_eq!((flat.importance_low, flat.importance_high), (0.5, 2.0));
    }
    let paper = abi::Loss::from(&TokenLoss::PAPER);
    assert_eq!(paper.importance, constant(&header, "IMPORTANCE_TRUNCATED"));
    assert_eq!((paper.importance_high, paper.ratio_level), (1.0, 0));
    let off = abi::Loss::from(&TokenLoss::LIKELIHOOD);
    assert_eq!(off.importance, constant(&header, "IMPORTANCE_OFF"));
    for (number, estimate) in [
        (1, KlEstimate::K1),
        (2, KlEstimate::K2),
        (3, KlEstimate::K3),
    ] {
        let kl = Kl {
            estimate,
            gradient: KlGradient::K2,
            times_ratio: true,
            ..Kl::k3(0.5)
        };
        let loss = TokenLoss {
            kl,
            ratio: RatioLevel::Sequence,
            entropy_bonus: 0.25,
            ..TokenLoss::PAPER
        };
        let flat = abi::Loss::from(&loss);
        assert_eq!(
            (flat.kl_estimate, flat.kl_times_ratio, flat.kl_beta),
            (number, 1, 0.5)
        );
        assert_eq!(flat.kl_gradient, constant(&header, "KL_GRADIENT_K2"));
        assert_eq!(flat.ratio_level, constant(&header, "LEVEL_SEQUENCE_MEAN"));
        assert_eq!(flat.entropy_bonus, 0.25);
    }
}

#[test]
fn tokens_keep_what_they_say() {
    let token = Token {
        target: 7,
        temperature: 0.5,
        weight: 1e-60,
        advantage: -2.0,
        old: Some(-1.5),
        rollout: None,
        reference: Some(-3.0),
    };
    let flat = abi::Token::from(&token);
    assert_eq!(
        (flat.target, flat.inverse_temperature, flat.advantage),
        (7, 2.0, -2.0)
    );
    assert_eq!(flat.present, abi::HAS_OLD | abi::HAS_REFERENCE);
    assert_eq!((flat.old_log_prob, flat.reference_log_prob), (-1.5, -3.0));
    // A weight too small for f32 does not make the row unread.
    assert!(flat.weight > 0.0);
    assert_eq!(
        abi::Token::from(&Token {
            weight: 0.0,
            ..token
        })
        .weight,
        0.0
    );
}

/// The formula of the header for the shared memory of the two-pass form is in two languages.
#[test]
fn the_header_has_the_formula_of_the_plan() {
    let header = header();
    for line in [
        "const int vector = 16 / element_bytes;",
        "const int share = (vocab + CLUSTER_SIZE - 1) / CLUSTER_SIZE;",
        "return (share + vector - 1) / vector * vector;",
        "return slice_length(vocab, element_bytes) * element_bytes + 16;",
    ] {
        assert!(
            header.contains(line),
            "`{line}` in abi.cuh; is `plan.rs` still right?"
        );
    }
    assert_eq!(plan::slice_length(1003, 2), 128);
    assert_eq!(plan::slice_length(1003, 4), 128);
    assert_eq!(plan::slice_length(1, 4), 4);
}

/// Needs the library of NVRTC and no GPU.
#[cfg(feature = "jit")]
#[test]
fn sources_compile_at_run_time() {
    use dart_kernels::cuda::jit;

    for architecture in [80, 90] {
        match jit::compile_all(architecture) {
            Ok(families) => {
                assert_eq!(families.len(), 5);
                // Machine code comes as an ELF file.
                let elf = |(_, code): &(_, Vec<u8>)| code.starts_with(b"\x7fELF");
                assert!(families.iter().all(elf));
            }
            Err(error @ Error::Library { .. }) => {
                let required = std::env::var("DART_TEST_REQUIRE").unwrap_or_default();
                let promised = required
                    .split(',')
                    .any(|name| ["nvrtc", "all"].contains(&name));
                assert!(!promised, "DART_TEST_REQUIRE names nvrtc, but: {error}");
                println!("skipped: run-time compiler: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let unknown = jit::compile_all(11).unwrap_err();
    assert!(matches!(unknown, Error::Compile { .. }), "{unknown}");
}
