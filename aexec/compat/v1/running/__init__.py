"""Running and saving graphs: sessions, training sessions, queue runners, servers, savers and summaries."""
