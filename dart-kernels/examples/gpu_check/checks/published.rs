//! Losses for the checks.

use dart_kernels::{
    Clip, Importance, Kl, KlEstimate, KlGradient, RatioLevel, Surrogate, TokenLoss, WeightLevel,
};

/// Losses that together use every branch of the token loss.
pub(crate) fn published() -> Vec<(&'static str, TokenLoss)> {
    let surrogate = |surrogate| TokenLoss {
        surrogate,
        ..TokenLoss::PAPER
    };
    let clip = Clip {
        ratio_cap: Some(1.1),
        ..Clip::new(0.1, 0.15)
    };
    let cispo = Surrogate::Cispo {
        low: None,
        high: 0.1,
    };
    let sapo = Surrogate::Sapo {
        positive: 1.0,
        negative: 1.05,
    };
    let mut all = vec![
        (
            "paper",
            TokenLoss {
                entropy_bonus: 0.02,
                ..TokenLoss::PAPER
            },
        ),
        ("likelihood", TokenLoss::LIKELIHOOD),
        ("capped", surrogate(Surrogate::Clipped(clip))),
        ("cispo", surrogate(cispo)),
        ("sapo", surrogate(sapo)),
        ("prime", surrogate(Surrogate::PRIME)),
        ("gspo", weighted(WeightLevel::SequenceMean)),
        ("sequence product", weighted(WeightLevel::SequenceSum)),
    ];
    all[1].1.kl = kl(KlEstimate::K1, KlGradient::K2, true);
    all[4].1.kl = kl(KlEstimate::K2, KlGradient::Own, false);
    all[5].1.importance = Importance::Off;
    all[6].1.ratio = RatioLevel::Sequence;
    all[6].1.entropy_bonus = 0.01;
    all
}

fn weighted(level: WeightLevel) -> TokenLoss {
    let importance = Importance::Masked {
        level,
        low: 0.2,
        high: 3.0,
    };
    TokenLoss {
        importance,
        ..TokenLoss::PAPER
    }
}

fn kl(estimate: KlEstimate, gradient: KlGradient, times_ratio: bool) -> Kl {
    Kl {
        estimate,
        gradient,
        times_ratio,
        ..Kl::k3(0.3)
    }
}
