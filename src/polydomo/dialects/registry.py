"""The ZeroMQ dialects, by the header of a first message. A new dialect adds one line to `SESSION_FACTORIES`."""

from collections.abc import Callable
from typing import Final, NamedTuple

from polydomo.dialects.dcp.messages import DIALECT as DCP
from polydomo.dialects.dcp.messages import PROTOCOL as DCP_PROTOCOL
from polydomo.dialects.dcp.session import DcpSession, resume_dcp
from polydomo.dialects.mdp.messages import CLIENT_FORMS
from polydomo.dialects.mdp.messages import HEADERS as MDP_HEADERS
from polydomo.dialects.mdp.session import MdpSession, resume_mdp
from polydomo.dialects.nfp.messages import HEADERS as NFP_HEADERS
from polydomo.dialects.nfp.messages import NORFAB
from polydomo.dialects.nfp.session import NfpSession, resume_norfab
from polydomo.dialects.session import PeerConnection, Session, SessionContext, SessionFactory
from polydomo.dialects.wmp.messages import PROTOCOL as WMP_PROTOCOL
from polydomo.dialects.wmp.session import WmpSession

SESSION_FACTORIES: Final[dict[bytes, SessionFactory]] = {
    **dict.fromkeys(MDP_HEADERS, MdpSession),
    DCP_PROTOCOL: DcpSession,
    **dict.fromkeys(NFP_HEADERS, NfpSession),
    WMP_PROTOCOL: WmpSession,
}


class Resumption(NamedTuple):
    """How named clients of one dialect continue with their jobs after the broker's restart. The broker opens their
    sessions: these clients send nothing until they get a reply."""

    open: Callable[
        [SessionContext, PeerConnection, str, str], Session
    ]  # takes the dialect and its form, `Client.form`
    asks: bool = False  # clients can ask for a result by its id; others get every reply that they may have missed, once


RESUMED: Final[dict[str, Resumption]] = {
    NORFAB.name: Resumption(resume_norfab, asks=True),
    **{form.name: Resumption(resume_mdp) for form in CLIENT_FORMS},
    DCP: Resumption(resume_dcp),
}
