"""The script of every Unicode character, as numbered by ICU (UScriptCode), for UnicodeScript.

Consecutive characters of one script form a run.  The table holds, for each run, the distance of its start from that of
the run before, and its script's number: base-128 integers, low digits first, compressed.  The values are those of
TensorFlow 2.21 (Unicode 16).
"""

from __future__ import annotations

import base64
import zlib
from functools import cache
from typing import Any

import numpy as np

__all__ = ["script_of"]

_RUNS = (
    "c-nndTWnO<6+Qdhd*|MnJH9h_X8gD_#xs6{!T7<$Hs)cQ27-(Xfs{u;5mG}|>(GQ05`~~77D;eXAqlBSh}G~ekG86l(m)}U(5h8F"
    "s!IK6qgJZ&(cel{KB~4qmAcMlu&Su)$2yOF&faIAz4zJsC^Z@tRf6b=L}dsks#g+~iC<W%Gjf#UXjPE?fvqI4pyOU(2V(k|X66zU"
    "h&65yWWCo#w0Dg(s{`8VC%7j+054yHoln5mjuM?90)qQA<>(5L5?>d|y^rITmH^VS61v6Gz3u%7whu#Zw_aWh{c;BKXe0Ea<Zbb>"
    "OxIFIj&d{Po0ob->{LeSRMEB}wg+u%qK;#i5Ll#ZJ6WaM@JO>c7Te)Gg3eOkYyx(c>sj(;$;a^n=q%68I@NUx7Uyo3XT^PpREGSS"
    "Bw>2;XULx+Z-(+SsVbee%m^|W>XJ#rHG9gWm#J@=a?9i^8yfk_<SQqubPFzF&(U*8wQ}5=fYnO=R-3(<Q%Ckz4C>gLhTZDS?a^FM"
    "5J77#oVFTB8|iKJL>5+?SDo8%+jKm3IM!_`&Xcv=UCY&4?ylu+YN<tSvPvUIttKQM>v&zGrbwP5*NaQ4J*`{JLKlmWX3m>)u$mj#"
    "Q%<u$H@lqEE6s^`F3lbi%_-6?q&rrCG1$?F_6F+Kz|{taXsC|sq2sw3CpacogN;h(!;sE4*qxnmFP)5`PFLBT8tskeB;5f?3mihH"
    "7b;2Hxhd^$fcU(HPe1rl9WSW%&HrPKGX0_Icr8(Z<rk4iY=cfvm-$o9ym_!H<I1Y|aJy)fE*Jj7TBVU(R6x3$lx~`%TO(cnICOmq"
    "34@YWy2M9PqIpVYz7uX~A)NW^km@Z%dg<I44DR0a(kAGo4*cOou!nj4un%ik*H;GkWCrx)8pz~4=t&=mNy?fGpe4kb)f-{2?uPa3"
    "$eN|_*4SGHVQt9});D{-B;52uTE=?TgC~{}sUc`S5tSe;(TdiKIs(U&s4s9Lo2cP<T_CaoB2F}=gF5C9+9Bwu_Fgr2JV2SWW$bCk"
    "Ac*%!kY{gl46m-zJZ3w4KcbsVtGF|&fu$<QN;5L5gE`5HG*g<W5)noV6km&a*FmIw)T(pt;wi2EP7jes)HeouAO=yzJqX8j|2q&?"
    "4#Hij5v&xy9?96#{|8=0ZAEv;hz@rm9eyS#D*8k@Aw5S#VN&dzR$gc;CW``tg4fXnTC?skrR(^}oQ06w<5Vl_R8$+%b=e%ft44BV"
    "^+;V0_w7(uCA_ypjfDTcNMA2Fkz_M~<g3#AwI68|ygf%`2RzjhJxMbxgN~Buiu@JytD>(T8-(}FIwFlks<LUZl1=h-8~mpw$GDuB"
    ";8`+}f<2)ddF~hmkI@Zdd_rS(W95~#Xn4grP>+;P=T$LhmWZz=N(K_yjAlEr`2Z930iKz=v>oYOJ?vZ`UK<Pl#vB$-q9byVwj4Nl"
    "+AGiZny3Hsx{8$k7DD}3S_fG@0<D*0zBX~1HMfw!)2fxa<_R0NCcB<C5kVQMQY~nHU5W<lR+=WXa#VH>%!Y~z6Dh^q)t83!QHwr`"
    ">*MKt8PWo@^c{v1$Br>xGT1~8MjGR^M|F$fh&)A`eZ3DE#y<;NQyY>^R!s@cPQJ`#O^{`>iV0^`fUe}`CB6N8mHpKIheBf9d|T$j"
    "J1a}!pQXIFWa~|)fvt5&ZS`<kdZ=m-FVwS$U=rt;^Mfo42a|6}<xMHWdsC9=y&zQlf@nAw#M#vdYnSXR!r3Pn*;Y9r4X{s00s4e2"
    "9%9%Hao-T%-4Nf@5YqsAdx&{`h)?`=sk|W-R1S5*K9olCx#h5)b6?`CeaU+<59dYia1QQa8|lL?Ht*PgfsIR0L%16gH_T;jND7y="
    "X6)RPF4M5c-J@m`KQpU0N!#{wX++_c@I8%Az#eTvW>j7ngZ~1rcUmI2rzs=xJhQ;_Ie6!!6UldF4=X?c{`-=Hyf2F|dP(TOOSBpr"
    "+cX)|Fr%H6VK^s^h+}5qn6R84qXum1%+xiFHVuPD*d^!IEz^i$<nuQ>wP`G~^E>hb*$p-hn$F0>@XnZv%4Jy&eOWrta#0?Ff6*LU"
    "szLre8G`#BXUoq^3Hm&>v(HNw_v9zC5>LD>TakWS<gPj6E>B}akK8qS-Ib>MBhu)ByA-nSV{?g*WwB{|ls+^Hd_WoVzRz=}^;O<M"
    "u1dFQ0;H}A!}1#4sIQqTUn6b9thx8Bkv~i8S+mA))oBvmtkL_rFxg%=wCmD7H%h?0&ea?Gr*zFtd6kTr)_&Bq%HA0lPwssNvX_-+"
    "@2>=RYS+*57VDGvwER8!)W)r~N8}d&1E(0Na*9&yQxv-AC~v5bQgUjX)oYv|gmEf2&Tq(g9v?U#$u8{OJq~*}ZMZwc$c)H4d|~<%"
    "p6!Rs#xwG-9(Xe{mH0$Hv(PoeJN)yZIw_pd=qp$V>-eR6M~+)~EjKMs!I>7m+iC7{r>O-qg~`8v?oj^_CV)<+jn%AZp?FHOqBU`K"
    "81=zA%!p!1X1z(O2-Bjz$^@{U&~c*Cac`TVWU^+QPDG8y8HqW*I&X~U{8h($?x&sK8^%kf>ED0cL1sS}_h<0C)F4*}L+H4t`3D{R"
    "L2lEr)@?db-!>+^O%r~h@35pgcW98Q)N%PWl{wDnT5v^J!mpTJSGenBLVX1r)hhf_G*!?gLYu!f)2aD$)9^7p{(mDu*wyiUSYO)z"
    "Wjt6jGTf@H2l9;U5Kb(^iN{O1{|&A9BT-M#s7$e@bjN6?7k(@lRK<cZZcV(2&f+*w3FC%8x-4m?${QRcJHJ0Pdm%2bENP}FC?*)y"
    "6uV_Y9irGR1dBpi(R8%G#Z>Ol{>GVZ+*>@##RBzR<Gca1Q_4{<{QS2XE#XHM#@gq+UU;M%LHOYcoNWlt*!YVd{-y&r{=`~`Cbb7s"
    "B3}sp1M6`|dj"
)


@cache
def _table() -> tuple[Any, Any]:
    """(first code point, script) of each run."""
    numbers = []
    value = shift = 0
    for byte in zlib.decompress(base64.b85decode(_RUNS)):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
    return np.cumsum(numbers[::2]), np.array(numbers[1::2], np.int32)


def script_of(code_points: Any) -> Any:
    """Script numbers of an array of code points; -1 for numbers that are not code points."""
    starts, scripts = _table()
    found = scripts[np.searchsorted(starts, code_points, side="right") - 1]
    outside = (code_points < 0) | (code_points > 0x10FFFF)
    return np.where(outside, np.int32(-1), found)
