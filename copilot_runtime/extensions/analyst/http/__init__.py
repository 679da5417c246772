"""The analyst's own routes: questions as server-sent events, data sets, charts, files, memory."""
